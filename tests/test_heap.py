"""Memory that a batch has freed serves the next one."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine import heap, slicer
from patience import PATIENCE

FAULTS = """
import resource
import numpy as np
from catchment.engine.heap import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for size in (1, 3, 2, 4) * 8:
        first, second = np.ones(size << 17), np.ones(size << 17)
        del first, second
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed_memory())
faults()
print(faults())
"""


def played(**environment: str) -> tuple[bool, int]:
    """Whether memory is kept, and how many pages some arrays cost that come and go."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env={"PYTHONPATH": ":".join(sys.path), **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
    )
    kept, pages = done.stdout.split()
    return kept == "True", int(pages)


@pytest.mark.skipif(not heap.keep_freed_memory(), reason="the C library is another, or was told")
def test_arrays_that_come_and_go_need_no_new_pages() -> None:
    kept, pages = played()
    assert kept
    assert pages < 500


def test_what_the_environment_says_stays() -> None:
    kept, pages = played(MALLOC_MMAP_THRESHOLD_="65536")
    assert not kept
    assert pages > 5_000


def test_only_large_batches_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(slicer, "keep_freed_memory", lambda: asked.append(1))
    for events, times in ((1_000, 0), (1 << 16, 1)):
        engine = ct.Engine([ct.Query("q", ct.count(), window=ct.tumbling("1s"))])
        engine.push({"ts": pa.array(np.arange(events), pa.timestamp("us", "UTC"))})
        assert len(asked) == times
