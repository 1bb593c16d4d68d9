"""A real cluster: a master and two workers as processes give what local mode gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_standalone_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster_job", str(tmp_path)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-3000:]
