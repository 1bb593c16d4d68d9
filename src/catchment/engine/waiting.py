"""Events that wait until they settle: kept once, and ordered once, for all groups of one key.

events --add--> +------------+ --settle(time)--> the order of those before it, for every group
                | WaitingSet |
parcel --absorb-> +----------+ --release(time)--> partials: the events themselves
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from catchment.engine import codec, partials, settled
from catchment.engine.bound_waiting import (
    BoundWaiting,
    SelectionTexts,
    WaitingEvents,
    choice_of,
    with_columns,
)
from catchment.engine.key_space import KeySpace
from catchment.engine.keys import KeyIndex, distinct
from catchment.engine.settled import Ordered
from catchment.engine.shapes.streams import StreamsState
from catchment.engine.streams import lane, parts_of
from catchment.model.plan import Group
from catchment.operators.grouping import stable_order
from catchment.operators.ragged import Ints


class WaitingSet:
    """The events of a set of groups that wait.

    Where each stream has windows of its own (`own`), the set has one group, and the events of
    streams are told apart.
    """

    def __init__(self, bound: BoundWaiting, space: KeySpace, own: StreamsState | None) -> None:
        self.bound = bound
        self.space = space
        self.own = own
        self.tables: list[pa.Table] = []

    @property
    def keys(self) -> KeyIndex:
        return self.space.keys

    # -- events in -------------------------------------------------------------------------------

    def add(self, part: WaitingEvents, stream: str) -> Ints:
        """Takes in events of a stream, as a slicer left them; their times."""
        code = self.keys.translate(part.keys, codec.ints(part.events, settled.KEY))
        if self.own is not None:
            code = lane(self.own.streams.code(stream), code)
        return self._add(part.events.set_column(0, settled.KEY, pa.array(code)))

    def absorb(self, table: pa.Table, stream: str | None = None) -> Ints:
        """Takes in events as partials; `stream` is whose they are, where it is known here."""
        names = [name for name in self.bound.schema.names if name != settled.KEY]
        return self._add(partials.events_of(self, table, self.bound.by, names, stream))

    def _add(self, events: pa.Table) -> Ints:
        if events.num_rows:
            self.tables = settled.gathered([*self.tables, events])
        return events.column(settled.TIME).to_numpy()

    # -- events out ------------------------------------------------------------------------------

    def settle(self, time: int, *, keep: bool) -> SettledEvents | None:
        """The events before a time, in order; with `keep` they wait no longer."""
        events, rest = settled.settle(self.tables, time)
        if keep:
            self.tables = rest
        return None if events is None else SettledEvents(events, self.keys, self.own is not None)

    def release(self, time: int, node: int, seq: int) -> pa.Table:
        """The events before a time, as partials; they wait no longer."""
        early, self.tables = settled.split(self.tables, time)
        events = partials.take_events(self, early, node, seq)
        if not self.tables and not self.keeps_keys:
            self.space.keys = KeyIndex()
        return events

    def take(self) -> pa.Table | None:
        """All events, as partials; their keys are forgotten."""
        if not self.tables:
            return None
        events = partials.take_events(self, self.tables, 0, 0)
        self.tables, self.space.keys = [], KeyIndex()
        return events

    def save(self, node: int) -> pa.Table:
        """All events, as partials; they stay."""
        return partials.take_events(self, self.tables, node, 0)

    def has_until(self, time: int) -> bool:
        """Whether an event up to a time waits."""
        return any((table.column(settled.TIME).to_numpy() <= time).any() for table in self.tables)

    # -- plans, keys and memory ------------------------------------------------------------------

    def continue_from(self, old: WaitingSet) -> None:
        """Goes on with the events that wait by an older plan, under the codes that they have."""
        self.space.keys = old.space.keys
        self.tables = [with_columns(table, self.bound) for table in old.tables]

    @property
    def keeps_keys(self) -> bool:
        return self.own is not None  # how many windows a key has had is kept for good

    def used_keys(self) -> list[Ints]:
        return [table.column(settled.KEY).to_numpy() for table in self.tables]

    def recode(self, place: Ints) -> None:
        self.tables = [settled.recode(table, place) for table in self.tables]

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self.tables)


def continue_sets(
    new: Mapping[int, WaitingSet], old: Mapping[int, WaitingSet], lineage: Mapping[int, int]
) -> None:
    """Carries events that wait over to the next plan; `lineage` says which of the old groups each
    group continues. Groups that wait together have done so before, or are new."""
    held = {id: waiting for waiting in old.values() for id in waiting.bound.groups}
    for waiting in new.values():
        before = [held[lineage[id]] for id in waiting.bound.groups if lineage.get(id) in held]
        if before:
            waiting.continue_from(before[0])


class SettledEvents:
    """Settled events of a set, in order, as each of its groups sees them."""

    def __init__(self, events: Ordered, keys: KeyIndex, lanes: bool) -> None:
        self._events = events
        self._keys = keys
        self._lanes = lanes
        self._seen: dict[SelectionTexts, Ordered] = {}

    def of(self, group: Group) -> Ordered:
        """The events that a group wants, under the codes of its selections and keys."""
        selections = group.selections
        if selections not in self._seen:
            self._seen[selections] = self._of(selections)
        return self._seen[selections]

    def _of(self, selections: SelectionTexts) -> Ordered:
        events, name = self._events, choice_of(selections)
        if name is None:
            return events
        if len(selections) == 1:
            met = events.condition(name.removeprefix("?"))
            return events if met.all() else events.at(np.flatnonzero(met))
        choice = events.ints(name)
        rows = np.flatnonzero(choice >= 0)
        codes = self._codes(events.key[rows], choice[rows].astype(np.int64), len(selections))
        order = stable_order(codes)
        return events.at(rows.take(order), codes.take(order))

    def _codes(self, key: Ints, selection: Ints, selections: int) -> Ints:
        """The codes of selections and keys, of events under the codes of their keys alone."""
        stream, code = parts_of(key) if self._lanes else (0, key)
        present, place = distinct(code * selections + selection)
        held, chosen = np.divmod(present, selections)
        lasting = self._keys.lookup(chosen, self._keys.take(held))[place]
        return lane(stream, lasting) if self._lanes else lasting


class Waits(Protocol):
    """What is held of a group: where its keys are, and the set that its events wait in, if any."""

    space: KeySpace
    own: StreamsState | None
    waiting: WaitingSet | None


def waiting_sets(
    bound: Mapping[int, BoundWaiting], groups: Mapping[int, Waits]
) -> dict[int, WaitingSet]:
    """The sets of events that wait, by the id of their first group; their groups are told."""
    made: dict[int, WaitingSet] = {}
    for id, one in bound.items():
        made[id] = WaitingSet(one, groups[id].space, groups[id].own)
        for member in one.groups:
            groups[member].waiting, groups[member].space = made[id], made[id].space
    return made
