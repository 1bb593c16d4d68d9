"""The whole state of an assembler as numbers and tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from catchment.engine import codec, counted
from catchment.engine.group import Era, GroupState
from catchment.engine.keys import KeyIndex
from catchment.engine.results import Limit
from catchment.engine.rows import concat_rows
from catchment.model.window import window_from_dict

if TYPE_CHECKING:
    from catchment.engine.assembler import Assembler

_PLACES = ("frontier", "kept_from", "newest", "slices", "partials", "calls", "known_since")


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
    def put(name: str, rows: Any) -> None:
        tables[prefix + name] = codec.rows_to_table(rows, state.operators)

    everyone = np.arange(len(state.keys), dtype=np.int64)
    keys: dict[str, pa.Array[Any]] = {"selection": pa.array(state.keys.selections)}
    keys |= {f"key {n}": column for n, column in enumerate(state.keys.take(everyone))}
    tables[prefix + "keys"] = pa.table(keys)
    put("pending", concat_rows(state.pending, state.operators))
    put("fresh", concat_rows(state.fresh, state.operators))
    put("store", state.store.all_rows())
    for number, table in enumerate(state.waiting):
        tables[f"{prefix}waiting {number}"] = table
    late = np.concatenate([np.empty(0, np.int64), *state.late])
    tables[prefix + "late"] = pa.table({"time": pa.array(late)})
    for n, session in state.sessions.items():
        put(f"session {n}", session.open)
    for n, mark in state.marks.items():
        put(f"marks {n}", mark.open)
        tables[f"{prefix}marks {n} unknown"] = pa.table({"unknown": pa.array(mark.unknown)})
        tables[f"{prefix}marks {n} seen"] = pa.table({"key": pa.array(mark.seen)})
        tables[f"{prefix}marks {n} events"] = pa.table({"events": pa.array(mark.events)})
    for n, (_, tally) in enumerate(state.ranks):
        put(f"ranks {n}", tally.kept)
        totals = {"key": pa.array(tally.keys), "total": pa.array(tally.total)}
        tables[f"{prefix}ranks {n} totals"] = pa.table(totals)
    meta: dict[str, Any] = {name: getattr(state, name) for name in _PLACES}
    meta["eras"] = [[[w.to_dict() for w in era.windows], era.until] for era in state.eras]
    meta["first"] = state.series.first.tolist()
    meta["waiting"] = len(state.waiting)
    meta["since"] = {
        "sessions": {n: s.since for n, s in state.sessions.items()},
        "marks": {n: m.since for n, m in state.marks.items()},
        "ranks": [[list(kinds), tally.since] for kinds, tally in state.ranks],
    }
    if state.ledger is not None:
        said = state.ledger.said
        meta["emitted"] = [[*i, *said[i], end] for i, end in state.ledger.ends.items()]
        meta["doubtful"] = sorted(state.ledger.doubtful)
    meta["repeats"] = None if state.repeats is None else state.repeats.save(prefix, tables)
    meta["own"] = None if state.own is None else state.own.save(prefix, tables)
    return meta


def _load_group(
    state: GroupState, prefix: str, meta: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    def rows(name: str) -> Any:
        return codec.table_to_rows(tables[prefix + name], state.operators)

    for name in _PLACES:
        setattr(state, name, meta[name])
    state.eras = [
        Era(tuple(window_from_dict(window) for window in windows), until)
        for windows, until in meta["eras"]
    ]
    state.keys = KeyIndex()
    keys = tables[prefix + "keys"]
    columns = [codec.whole(keys, name) for name in keys.schema.names[1:]]
    state.keys.lookup(codec.ints(keys, "selection"), columns)
    state.pending, state.fresh = [rows("pending")], [rows("fresh")]
    state.store.append(rows("store"))
    state.waiting = [tables[f"{prefix}waiting {n}"] for n in range(meta["waiting"])]
    state.late = [codec.ints(tables[prefix + "late"], "time")]
    state.series.first = np.array(meta["first"], np.int64)
    since = meta["since"]
    for n, session in state.sessions.items():
        state.sessions[n] = session._replace(
            open=rows(f"session {n}"), since=since["sessions"][str(n)]
        )
    for n, mark in state.marks.items():
        unknown = codec.whole(tables[f"{prefix}marks {n} unknown"], "unknown")
        state.marks[n] = mark._replace(
            open=rows(f"marks {n}"),
            since=since["marks"][str(n)],
            unknown=unknown.to_numpy(zero_copy_only=False),
            seen=codec.ints(tables[f"{prefix}marks {n} seen"], "key"),
            events=codec.ints(tables[f"{prefix}marks {n} events"], "events"),
        )
    _load_ranks(state, prefix, since["ranks"], tables)
    if state.ledger is not None:
        for *identity, revision, digest, end in meta["emitted"]:
            state.ledger.said[tuple(identity)] = (revision, digest)
            state.ledger.ends[tuple(identity)] = end
        for identity in meta["doubtful"]:
            state.ledger.doubtful.add(tuple(identity))
    if state.repeats is not None:
        state.repeats.load(prefix, tables, meta["repeats"])
    if state.own is not None:
        state.own.load(prefix, tables, meta["own"])


def _load_ranks(
    state: GroupState, prefix: str, tracks: list[Any], tables: dict[str, pa.Table]
) -> None:
    state.ranks = []
    for n, (kinds, since) in enumerate(tracks):
        windows = tuple(state.group.windows[kind] for kind in kinds)
        tally = counted.ranks(windows, state.operators, since)
        totals = tables[f"{prefix}ranks {n} totals"]
        kept = codec.table_to_rows(tables[f"{prefix}ranks {n}"], state.operators)
        tally = tally._replace(
            kept=kept, keys=codec.ints(totals, "key"), total=codec.ints(totals, "total")
        )
        state.ranks.append((tuple(kinds), tally))
