"""The whole state of an assembler as a record and tables, and back; and the record of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from catchment.engine import codec
from catchment.engine.emitted import Identity
from catchment.engine.group import GroupState
from catchment.engine.interleaved import from_table, joined, to_table
from catchment.engine.keys import KeyIndex
from catchment.engine.results import Limit
from catchment.engine.shapes.base import Get, Put
from catchment.model.query import QueryRecord
from catchment.model.rules import EventRules
from catchment.planner.observed import RateWatch

if TYPE_CHECKING:
    from catchment.engine.assembler import Assembler

_BETWEEN = "between"
"""The table of slices between marks, where a group has some."""


class EmittedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A window that was said and that late events may still change."""

    kind: int
    key: int
    start: int
    end: int
    index: int
    revision: int
    digest: int | None
    """The digest of its events; None: the window was retracted."""
    until: int
    """Where it ends: it is forgotten once the horizon has passed this."""

    @property
    def identity(self) -> Identity:
        return self.kind, self.key, self.start, self.end, self.index


class GroupStateRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a snapshot holds of a group besides tables."""

    frontier: int
    newest: int
    partials: int
    calls: int
    known_since: dict[str, int]
    shapes: dict[str, msgspec.Raw]
    """The record of each shape, by its name."""
    emitted: list[EmittedRecord] = []
    doubtful: list[Identity] = []
    repeats: list[list[int]] | None = None
    """The times of each event that may repeat; None where repeats count."""


class AssemblerRecord(msgspec.Struct, frozen=True):
    """What a snapshot holds of an assembler besides tables."""

    frontier: int
    newest: int
    counts: dict[str, int]
    limits: dict[str, Limit]
    """The windows that late or leaving queries answer, by query."""
    groups: dict[int, GroupStateRecord]
    waiting: dict[int, int]
    """Of each set of groups whose events wait together, by the id of the first: the number of its
    tables."""


class SlicerRecord(msgspec.Struct, frozen=True):
    """What a snapshot holds of the slicer: what it has counted, and the newest event time."""

    counts: dict[str, int]
    newest: int


class AsideRecord(msgspec.Struct, frozen=True):
    """How many rows set aside went to files, and how many were dropped."""

    spilled: int
    dropped: int


class GivenLimits(msgspec.Struct, frozen=True):
    """The limits of memory as a user gave them; None: that of the machine, whichever it is."""

    state_bytes: int | None
    key_bytes: int
    aside_bytes: int


class EngineRecord(AssemblerRecord, frozen=True, kw_only=True):
    """What a snapshot of an engine holds besides tables."""

    plan: bytes
    queries: list[QueryRecord]
    """As `Query.to_dict` gives them."""
    rules: EventRules
    memory: GivenLimits = msgspec.field(name="limits of memory")
    observed: RateWatch
    sliced: SlicerRecord
    aside: AsideRecord


def save(assembler: Assembler) -> tuple[AssemblerRecord, dict[str, pa.Table]]:
    """What is no table, and the tables."""
    tables: dict[str, pa.Table] = {}
    groups = {id: _save_group(state, f"{id} ", tables) for id, state in assembler.states.items()}
    for id, waiting in assembler.waiting.items():
        tables |= {f"{id} waiting {n}": table for n, table in enumerate(waiting.tables)}
    for id in _with_keys(assembler):
        tables[f"{id} keys"] = _keys_table(assembler.states[id].keys)
    counts, limits = dict(assembler.counts), dict(assembler.limits)
    held = {id: len(waiting.tables) for id, waiting in assembler.waiting.items()}
    record = AssemblerRecord(assembler.frontier, assembler.newest, counts, limits, groups, held)
    return record, tables


def load(assembler: Assembler, saved: AssemblerRecord, tables: dict[str, pa.Table]) -> None:
    """Brings an assembler of the same plan to where another one was."""
    assembler.frontier, assembler.newest = saved.frontier, saved.newest
    assembler.counts |= saved.counts
    assembler.limits = dict(saved.limits)
    for id in _with_keys(assembler):
        keys = tables[f"{id} keys"]
        columns = [codec.whole(keys, name) for name in keys.schema.names[1:]]
        space = assembler.states[id].space
        space.keys = KeyIndex()
        space.keys.lookup(codec.ints(keys, "selection"), columns)
    for id, waiting in assembler.waiting.items():
        waiting.tables = [tables[f"{id} waiting {n}"] for n in range(saved.waiting[id])]
    for id, state in assembler.states.items():
        _load_group(state, f"{id} ", saved.groups[id], tables)


def _with_keys(assembler: Assembler) -> list[int]:
    """The groups that have keys of their own, and of those that share some, the first."""
    states = assembler.states.items()
    return [id for id, one in states if one.waiting is None or one.waiting.bound.id == id]


def _keys_table(keys: KeyIndex) -> pa.Table:
    everyone = np.arange(len(keys), dtype=np.int64)
    columns: dict[str, pa.Array[Any]] = {"selection": pa.array(keys.selections)}
    columns |= {f"key {n}": column for n, column in enumerate(keys.take(everyone))}
    return pa.table(columns)


def _save_group(state: GroupState, prefix: str, tables: dict[str, pa.Table]) -> GroupStateRecord:
    shapes: dict[str, msgspec.Raw] = {}
    for shape in state.shapes:
        put = Put(tables, f"{prefix}{shape.name} ", state.operators)
        shape.save(put)
        shapes[shape.name] = put.saved
    if state.between:
        between = joined(state.between, state.operators)
        tables[prefix + _BETWEEN] = to_table(between, state.operators)
    emitted = state.emitted
    return GroupStateRecord(
        state.frontier,
        state.newest,
        state.partials,
        state.calls,
        state.known_since,
        shapes,
        []
        if emitted is None
        else [EmittedRecord(*i, *emitted.said[i], end) for i, end in emitted.ends.items()],
        [] if emitted is None else sorted(emitted.doubtful),
        None if state.repeats is None else state.repeats.save(prefix, tables),
    )


def _load_group(
    state: GroupState, prefix: str, saved: GroupStateRecord, tables: dict[str, pa.Table]
) -> None:
    state.frontier, state.newest = saved.frontier, saved.newest
    state.partials, state.calls = saved.partials, saved.calls
    state.known_since = saved.known_since
    for shape in state.shapes:
        where = f"{prefix}{shape.name} "
        shape.load(Get(tables, where, state.operators, saved.shapes[shape.name]))
    if prefix + _BETWEEN in tables:
        state.between = [from_table(tables[prefix + _BETWEEN], state.operators)]
    if state.emitted is not None:
        for one in saved.emitted:
            state.emitted.said[one.identity] = (one.revision, one.digest)
            state.emitted.ends[one.identity] = one.until
        state.emitted.doubtful.update(saved.doubtful)
    if state.repeats is not None:
        state.repeats.load(prefix, tables, saved.repeats or [])
