"""The root's state as bytes, and back."""

from __future__ import annotations

from collections.abc import Sequence

from catchment.counting import wire
from catchment.counting.fold import Fold
from catchment.counting.forecast import Pace, Shares
from catchment.counting.message import Ask, Forecast, Zone
from catchment.counting.patience import Patience
from catchment.counting.root import RootCounter
from catchment.counting.scheme import Auto
from catchment.counting.track import Track
from catchment.counting.windows import Slice, Window
from catchment.model.window import Counted

_PLAIN = (
    "scheme",
    "predictor",
    "timeout",
    "zones",
    "returns",
    "found",
    "edge",
    "complete",
    "orders",
    "version",
    "corrections",
    "rounds",
    "_ordered",
    "_corrected",
    "_spent",
    "_doubtful",
    "_news",
    "_changed",
)


def save(root: RootCounter) -> bytes:
    """All that a root must not lose."""
    orders = [None if o is None else o.to_plain() for o in (root.ask, root.zone, root.forecast)]
    full = [[w.kind, w.number, w.partial, w.exact, w.missing] for w in root.full]
    return wire.dump(
        [
            {name: getattr(root, name) for name in _PLAIN},
            [track.to_plain() for track in root.tracks.values()],
            [part.to_plain() for part in root.shelf.slices],
            root.pace.to_plain(),
            root.shares.to_plain(),
            root.auto.to_plain(),
            orders,
            full,
            root.patience.to_plain(),
        ]
    )


def restore(
    data: bytes, windows: Sequence[Counted], fold: Fold, repeat: bool = True
) -> RootCounter:
    """A root that goes on from saved state; what was said last may have gone under."""
    plain, tracks, slices, pace, shares, auto, orders, full, patience = wire.load(data)
    root = RootCounter([], windows, fold)
    for name, value in plain.items():
        setattr(root, name, value)
    root.tracks = {track.node: track for track in map(Track.from_plain, tracks)}
    root.shelf.slices = [Slice(*part) for part in slices]
    root.pace, root.shares = Pace.from_plain(pace), Shares.from_plain(shares)
    root.auto, root.patience = Auto.from_plain(auto), Patience.from_plain(patience)
    root.full = [Window(*window) for window in full]
    root.ask, root.zone, root.forecast = (
        None if order is None else kind(*order)
        for kind, order in zip((Ask, Zone, Forecast), orders, strict=True)
    )
    if repeat:
        root.say_again()
    return root
