"""What a person should do something about: a node that is missing, a lag that grows, a limit."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from catchment.ui.snapshot import Alert, Snapshot

NEAR = 0.9
"""The share of a limit from which on it is told."""
LAG = 5.0
"""Seconds of lag below which its growth is nobody's business."""
LOOKS = 10
"""Looks at the lag that must agree that it grows..."""
REMEMBERED = 600
"""...and looks among which one with less lag is remembered..."""
RISEN = 3.0
"""...of which the lag is told once it is this many times as much."""
_NAMED = 3


class Alerts:
    """Remembers the last looks at a job, and says what is wrong with it."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque(maxlen=REMEMBERED)

    def of(self, found: Snapshot) -> tuple[Alert, ...]:
        """What is wrong, as of this snapshot and those before."""
        job = found.job
        made: list[Alert] = []
        if job.state in ("failed", "unreachable"):
            made.append(Alert("bad", "state", job.error or f"the job is {job.state}"))
        missing = [node.id for node in found.nodes if node.state == "missing"]
        if missing and job.state != "ended":
            made.append(Alert("bad", "missing", _missing(missing)))
        made += [Alert("bad", f"why/{n.id}", f"{n.id}: {n.why}") for n in found.nodes if n.why][:20]
        if job.lag is not None:
            self._lags.append(job.lag)
        if job.state == "running" and self._lags:
            made += self._lag()
        for limit in found.limits:
            if limit.share >= NEAR:
                text = f"{limit.name}: {limit.share:.0%} used; when full, {limit.when_reached}"
                made.append(Alert("warn", f"limit/{limit.name}", text))
        return tuple(made)

    def _lag(self) -> list[Alert]:
        """A lag that grows, or that is far more than it has been of late."""
        lags = list(self._lags)
        least, now = min(lags), lags[-1]
        last = lags[-LOOKS:]
        if now < LAG:
            return []
        never_less = all(after >= before for before, after in pairwise(last))
        if len(last) == LOOKS and never_less and now > 1.2 * last[0]:
            return [Alert("warn", "lag", f"the lag grows: from {last[0]:.1f} s to {now:.1f} s")]
        if now > RISEN * least:
            return [Alert("warn", "lag", f"the lag is {now:.0f} s, and was {least:.1f} s")]
        return []


def _missing(ids: list[str]) -> str:
    """
    >>> _missing(["a"]), _missing(["a", "b", "c", "d"])
    ('a is missing', 'a, b, c and 1 more are missing')
    """
    named = ", ".join(ids[:_NAMED])
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{named}{more} {'is' if len(ids) == 1 else 'are'} missing"
