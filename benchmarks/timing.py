"""Timing: what is compared is run in turns, so that a busy moment of the machine hits both."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

Action = Callable[[], Any]
"""Something to time; make anew before each run whatever it uses up."""

Prepare = Callable[[], Action]
"""Makes an action, outside the timing."""

Clock = Callable[[], float]
"""Seconds: `perf_counter`, or `process_time`, by which all threads of a process together take the
time that they would take on one core, whatever else the machine does."""


def seconds(action: Action, clock: Clock = perf_counter) -> float:
    """How long an action takes, the collector of garbage asleep."""
    gc.collect()
    gc.disable()
    try:
        begin = clock()
        action()
        return clock() - begin
    finally:
        gc.enable()


def in_turns(
    runs: int, actions: Sequence[Prepare], warm_up: bool = True, clock: Clock = perf_counter
) -> list[list[float]]:
    """The seconds of each action in each run: `[run][action]`; the first run may not count."""
    if warm_up:
        for prepare in actions:
            prepare()()
    return [[seconds(prepare(), clock) for prepare in actions] for _ in range(runs)]


def ratio(times: Sequence[Sequence[float]], of: int, to: int) -> float:
    """The median over runs of one action's seconds over another's.

    >>> ratio([[1.0, 2.0], [1.0, 4.0], [1.0, 3.0]], 1, 0)
    3.0
    """
    return median(run[of] / run[to] for run in times)


def typical(times: Sequence[Sequence[float]], which: int) -> float:
    """The median seconds of an action."""
    return median(run[which] for run in times)
