"""Freed memory is kept for the next batch, where the C library would give it back at once.

A batch makes and frees arrays of megabytes, again and again. glibc maps such blocks anew each time,
or cuts the end off its heap after each, and every page of the next one has to be brought in and
cleared by the kernel: for arrays that a processor passes once, that takes longer than the rest.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

KEPT = 128 << 20
"""Bytes at the end of the heap that are kept when they are free."""
MAPPED = 32 << 20
"""Blocks from this size on are mapped by themselves, and given back: glibc allows no more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_DECIDED = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Asks the C library to, once for the process; whether it does.

    What the environment says of these thresholds stays, and so does any other library.
    """
    if any(name in os.environ for name in _DECIDED):
        return False
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    told = [tell(_M_TRIM_THRESHOLD, KEPT), tell(_M_MMAP_THRESHOLD, MAPPED)]
    return all(told)
