"""Spark Connect: the tests that are marked `connect` pass there too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE

HERE = Path(__file__).parent


@pytest.mark.spark
@pytest.mark.slow
def test_on_a_server_of_spark_connect() -> None:
    """In a process of its own: PySpark has sessions of one kind in a process, never of both."""
    pytest.importorskip("grpc")
    files = sorted(str(path) for path in HERE.glob("test_spark_*.py"))
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "connect", "-p", "no:randomly", *files],
        env=os.environ | {"CATCHMENT_TEST_CONNECT": "1"},
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-2000:]
    assert " passed" in told.stdout
