"""What an engine has done so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass

COUNTS = (
    "events",
    "accepted",
    "late",
    "bad",
    "duplicates",
    "updates",
    "results",
    "open_windows",
    "open_events",
    "no_window",
)
"""What every runtime counts of events and windows."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the engine began: `accepted + late + bad + duplicates = events`, always.

    >>> Stats(*[5, 3, 1, 1, 0], *[0] * 8).late
    1
    """

    events: int
    """Events pushed."""
    accepted: int
    """Events that took part, in whatever windows they are."""
    late: int
    """Events that came too late, dropped or handed back."""
    bad: int
    """Rows without a usable time, set aside."""
    duplicates: int
    """Events that repeated another, for every query that asked."""
    updates: int
    """Late events that corrected results; they count as accepted too."""
    slices: int
    """Slices of time completed, all groups together."""
    partials: int
    """Rows of slice and key made."""
    operator_calls: int
    """Events times operators."""
    results: int
    """Rows of key and window, each once, however many queries share it and whatever they select."""
    open_windows: int
    """Count and user-defined windows that had not ended when the input did."""
    open_events: int
    """Accepted events in such windows, each once for each window type."""
    state_bytes: int
    """Bytes of state now."""
    aside_spilled: int = 0
    """Late and bad rows that were written to a file, because nobody had taken them."""
    aside_dropped: int = 0
    """Late and bad rows that were not kept: nobody had taken them, and there was no more room."""
    no_window: int = 0
    """Accepted events that are in no session of some query, because their own gap is unusable."""
    missed: int = 0
    """Slices of a node that was given up, too late for the windows that they are in."""

    def to_dict(self) -> dict[str, int]:
        return asdict(self)
