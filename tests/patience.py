"""Waiting for what must come to pass: for as long as it takes on a busy machine, and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 240.0
"""Seconds after which something has not come to pass; less than a test may take."""


def wait_for(met: Callable[[], Any], pause: float = 0.02, said: Callable[[], Any] = str) -> Any:
    """What a question gives once that is something; `said` tells more of a failure."""
    end = time.monotonic() + PATIENCE
    while not (found := met()):
        assert time.monotonic() < end, f"it did not come to pass: {said()}"
        time.sleep(pause)
    return found
