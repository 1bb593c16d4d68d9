"""What an engine has done so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the engine began: `accepted + late + bad + duplicates = events`, always."""

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
    """Result rows, each once, however many queries share it."""
    state_bytes: int
    """Bytes of state now."""

    def to_dict(self) -> dict[str, int]:
        return asdict(self)
