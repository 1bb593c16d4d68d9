"""The whole state of an assembler as numbers and tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from catchment.engine import codec
from catchment.engine.group import GroupState
from catchment.engine.keys import KeyIndex
from catchment.engine.results import Limit
from catchment.engine.shapes.base import Get, Put

if TYPE_CHECKING:
    from catchment.engine.assembler import Assembler

_PLACES = ("frontier", "newest", "partials", "calls", "known_since")


def save(assembler: Assembler) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """What is no table, and the tables."""
    tables: dict[str, pa.Table] = {}
    meta: dict[str, Any] = {
        "frontier": assembler.frontier,
        "newest": assembler.newest,
        "counts": dict(assembler.counts),
        "limits": {name: list(limit) for name, limit in assembler.limits.items()},
    }
    meta["groups"] = {
        str(id): _save_group(state, f"{id} ", tables) for id, state in assembler.states.items()
    }
    return meta, tables


def load(assembler: Assembler, meta: dict[str, Any], tables: dict[str, pa.Table]) -> None:
    """Brings an assembler of the same plan to where another one was."""
    assembler.frontier, assembler.newest = meta["frontier"], meta["newest"]
    assembler.counts |= meta["counts"]
    assembler.limits = {name: Limit(*limit) for name, limit in meta["limits"].items()}
    for id, state in assembler.states.items():
        _load_group(state, f"{id} ", meta["groups"][str(id)], tables)


def _save_group(state: GroupState, prefix: str, tables: dict[str, pa.Table]) -> dict[str, Any]:
    everyone = np.arange(len(state.keys), dtype=np.int64)
    keys: dict[str, pa.Array[Any]] = {"selection": pa.array(state.keys.selections)}
    keys |= {f"key {n}": column for n, column in enumerate(state.keys.take(everyone))}
    tables[prefix + "keys"] = pa.table(keys)
    for number, table in enumerate(state.waiting):
        tables[f"{prefix}waiting {number}"] = table
    meta: dict[str, Any] = {name: getattr(state, name) for name in _PLACES}
    meta["waiting"] = len(state.waiting)
    meta["shapes"] = {
        shape.name: shape.save(Put(tables, f"{prefix}{shape.name} ", state.operators))
        for shape in state.shapes
    }
    if state.emitted is not None:
        said = state.emitted.said
        meta["emitted"] = [[*i, *said[i], end] for i, end in state.emitted.ends.items()]
        meta["doubtful"] = sorted(state.emitted.doubtful)
    meta["repeats"] = None if state.repeats is None else state.repeats.save(prefix, tables)
    return meta


def _load_group(
    state: GroupState, prefix: str, meta: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    for name in _PLACES:
        setattr(state, name, meta[name])
    state.keys = KeyIndex()
    keys = tables[prefix + "keys"]
    columns = [codec.whole(keys, name) for name in keys.schema.names[1:]]
    state.keys.lookup(codec.ints(keys, "selection"), columns)
    state.waiting = [tables[f"{prefix}waiting {n}"] for n in range(meta["waiting"])]
    for shape in state.shapes:
        get = Get(tables, f"{prefix}{shape.name} ", state.operators)
        shape.load(get, meta["shapes"][shape.name])
    if state.emitted is not None:
        for *identity, revision, digest, end in meta["emitted"]:
            state.emitted.said[tuple(identity)] = (revision, digest)
            state.emitted.ends[tuple(identity)] = end
        for identity in meta["doubtful"]:
            state.emitted.doubtful.add(tuple(identity))
    if state.repeats is not None:
        state.repeats.load(prefix, tables, meta["repeats"])
