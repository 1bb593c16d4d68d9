"""A real cluster: a master and two workers as processes give what local mode gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE
from schedules import soaked

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "part", ["jobs", soaked("load"), soaked("frames"), soaked("allocation"), soaked("tree")]
)
def test_a_standalone_cluster(part: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster_job", part, str(tmp_path)],
        cwd=HERE.parent,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-3000:]
