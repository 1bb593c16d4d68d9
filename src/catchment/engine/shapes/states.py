"""Which state the windows of a shape need: the one place in the engine that tells shapes apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from catchment.engine.bound_group import BoundGroup
from catchment.engine.emitted import Emitted
from catchment.engine.shapes.base import ShapeState
from catchment.engine.shapes.chained import ChainedState
from catchment.engine.shapes.counted import CountedState
from catchment.engine.shapes.marked import MarkedState
from catchment.engine.shapes.periodic import PeriodicState
from catchment.engine.shapes.session import SessionState
from catchment.engine.shapes.stepped import SteppedState
from catchment.engine.shapes.streams import StreamsState
from catchment.model.plan import Group
from catchment.model.window import Chained, Counted, Gap, Marked, Periodic, Stepped, Window

W = TypeVar("W", bound=Window)

MakeState = Callable[[BoundGroup, Mapping[int, Any], Emitted | None], ShapeState]
"""Takes a group, its windows of one shape by their places, and what was emitted of them, where late
events may change it; gives the state of these windows, in which there is nothing yet."""

STATES: dict[type[Window], MakeState] = {
    Marked: lambda bound, windows, _: MarkedState(bound, windows),
    Counted: lambda bound, windows, _: CountedState(bound, windows),
    Chained: lambda bound, windows, _: ChainedState(bound, windows),
    Stepped: lambda bound, windows, _: SteppedState(bound, windows),
    Gap: SessionState,
    Periodic: PeriodicState,
}
"""What makes the state of a shape, in the order in which states give windows."""


def windows_of(group: Group, shape: type[W]) -> dict[int, W]:
    """The windows of a group that have a shape, by their places."""
    return {n: window for n, window in enumerate(group.windows) if isinstance(window, shape)}


def stream_state(bound: BoundGroup) -> StreamsState | None:
    """The state of a group whose windows are followed where their own stream is read."""
    if bound.group.slicing != "stream":
        return None
    others = [
        make(bound, windows, None)
        for shape, make in STATES.items()
        if shape is not Marked and (windows := windows_of(bound.group, shape))
    ]
    marked = windows_of(bound.group, Marked)
    return StreamsState(bound, windows_of(bound.group, Window), marked, others)


def shape_states(
    bound: BoundGroup, emitted: Emitted | None, own: StreamsState | None
) -> list[ShapeState]:
    """The states of all shapes among the windows of a group; `own` is that of its streams, which
    has all of them."""
    if own is not None:
        return [own]
    return [
        make(bound, windows, emitted)
        for shape, make in STATES.items()
        if (windows := windows_of(bound.group, shape))
    ]
