"""Count and user-defined windows that are open when the input ends: counted, and given if asked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import catchment as ct
from catchment.engine.parcels import pack_results, unpack_results
from catchment.errors import QueryError
from catchment.simulate import World
from catchment.testing.compare import rows_of
from trees import READ, batches, charter, final

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("v", pa.int64()), ("m", pa.string())]
)
WINDOWS = {
    "tens": ct.count_tumbling(5),
    "over": ct.count_sliding(5, 2),
    "apart": ct.count_sliding(2, 5),
    "trips": ct.between("m = 'on'", "m = 'off'"),
    "laps": ct.cut("m = 'on'"),
}
AGGREGATES = (ct.count(), ct.sum("v"))


def queries(**options: Any) -> list[ct.Query]:
    return [ct.Query(n, *AGGREGATES, by="k", window=w, **options) for n, w in WINDOWS.items()]


def open_of(name: str, events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """By the words of its definition: the windows of one key that are open at the end."""
    window: Any = WINDOWS[name]
    if name in ("tens", "over", "apart"):
        starts = range(0, len(events), window.step)
        return [events[n:] for n in starts if n + window.size > len(events)]
    inside: list[dict[str, Any]] | None = None
    for place, event in enumerate(events):
        if name == "laps":
            if place == 0 or event["m"] == "on":
                inside = []
        elif inside is None and event["m"] == "on":
            inside = []
        elif inside is not None and event["m"] == "off":
            inside = None
        if inside is not None:
            inside.append(event)
    return [] if inside is None else [inside]


def by_key(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["ts"]):
        found.setdefault(row["k"], []).append(row)
    return found


events = st.lists(
    st.fixed_dictionaries(
        {
            "ts": st.integers(0, 60),
            "k": st.sampled_from("ab"),
            "v": st.integers(-9, 9),
            "m": st.sampled_from(["on", "off", None]),
        }
    ),
    max_size=40,
)


@settings(max_examples=settings.default.max_examples)
@given(rows=events, cuts=st.lists(st.integers(0, 60), max_size=3), restored=st.booleans())
def test_windows_that_never_end_are_counted(
    rows: list[dict[str, Any]], cuts: list[int], restored: bool
) -> None:
    wanted = {n: [w for es in by_key(rows).values() for w in open_of(n, es)] for n in WINDOWS}
    inside = {
        name: {id(event) for window in windows for event in window}
        for name, windows in wanted.items()
    }
    engine = ct.Engine(queries(), schema=SCHEMA, incomplete="emit")
    rest = sorted(rows, key=lambda row: row["ts"])
    results = []
    for at in [*sorted(cuts), 1000]:
        now, rest = [r for r in rest if r["ts"] < at], [r for r in rest if r["ts"] >= at]
        engine.push(pa.Table.from_pylist(now, SCHEMA))
        results.append(engine.advance(at))
        if restored:
            engine = ct.Engine.restore(engine.snapshot())
    results.append(engine.close())
    counts = engine.stats
    assert counts.open_windows == sum(map(len, wanted.values()))
    assert counts.open_events == sum(map(len, inside.values()))
    assert counts.accepted == counts.events == len(rows)
    for name, windows in wanted.items():
        table = pa.concat_tables([result[name] for result in results])
        assert table.schema.field("complete").type == pa.bool_()
        got = [row for row in rows_of(table) if not row["complete"]]
        shown = sorted((r["k"], r["window_start"], r["count(*)"], r["sum(v)"]) for r in got)
        assert shown == sorted(
            (w[0]["k"], w[0]["ts"], len(w), sum(event["v"] for event in w)) for w in windows
        )
        ends = sorted(row["window_end"] for row in got)
        counted = name in ("tens", "over", "apart")
        assert ends == sorted(window[-1]["ts"] + (not counted) for window in windows)
        if "window_index" in table.schema.names:
            names = ["k", "window_start", "window_end", "window_index"]
            assert len(table.select(names).group_by(names).aggregate([])) == len(table)


def pushed(**options: Any) -> ct.Engine:
    engine = ct.Engine(queries(), schema=SCHEMA, **options)
    rows = [{"ts": n, "k": "a", "v": n, "m": "on" if n == 3 else None} for n in range(7)]
    engine.push(pa.Table.from_pylist(rows, SCHEMA))
    return engine


def test_only_counted_unless_asked() -> None:
    engine = pushed()
    results = engine.close()
    assert results["tens"].num_rows == 1 and "complete" not in results["tens"].column_names
    assert results["trips"].num_rows == 0
    #  0 1 2 3 4 5 6    an event each, "on" at 3
    #  [-------) [--    tens
    #  [-------)        over
    #      [-------)
    #          [----
    #              [-
    #  [-)       [-)    apart
    #        [-------   trips, laps
    assert engine.stats.open_windows == 1 + 2 + 0 + 1 + 1
    assert engine.stats.open_events == 2 + 3 + 0 + 4 + 4


def test_asked_for_at_the_end() -> None:
    results = pushed().close(incomplete="emit")
    rows = [(row["window_index"], row["complete"]) for row in rows_of(results["tens"])]
    assert rows == [(0, True), (1, False)]
    assert [row["complete"] for row in rows_of(results["trips"])] == [False]
    with pytest.raises(QueryError, match=r"no such choice for incomplete.*count, emit"):
        pushed().close(incomplete="all")  # type: ignore[arg-type]


def test_what_is_open_is_marked_on_its_way_between_processes() -> None:
    engine = pushed(incomplete="emit")
    again, _ = unpack_results(pack_results(engine.close()), engine.bound)
    assert [row["complete"] for row in rows_of(again["tens"])] == [True, False]


def test_time_windows_say_nothing_of_it() -> None:
    query = ct.Query("n", ct.count(), window=ct.tumbling("5us"))
    engine = ct.Engine([query], schema=SCHEMA, incomplete="emit")
    engine.push(pa.Table.from_pylist([{"ts": 1, "k": "a", "v": 1, "m": None}], SCHEMA))
    results = engine.close()
    assert "complete" not in results["n"].column_names and engine.stats.open_windows == 0


# -- trees ----------------------------------------------------------------------------------------

FLAT: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}


def tree_counts(count: str, **settings: Any) -> tuple[World, dict[str, int]]:
    given = {name: batches(seed, 100) for seed, name in enumerate("ab")}
    world = World(charter(FLAT, queries(), count=count, **settings), given, until=0)
    world.run()
    assert world.done
    root = world.sites["root"].member
    assert root is not None
    return world, root.machine.counts  # type: ignore[union-attr]


@pytest.mark.parametrize("count", ["central", "monitor"])
def test_a_tree_counts_them(count: str) -> None:
    world, counts = tree_counts(count)
    rows = [
        row | {"at": (row["ts"], id)}
        for id in "ab"
        for table in world.sites[id].batches or []
        for row in table.to_pylist()
    ]
    wanted = {n: [w for es in _ranked(rows).values() for w in open_of(n, es)] for n in WINDOWS}
    assert counts["open_windows"] == sum(map(len, wanted.values()))
    inside = {n: {id(event) for w in windows for event in w} for n, windows in wanted.items()}
    assert counts["open_events"] == sum(map(len, inside.values()))
    assert counts["events"] == len(rows)


def _ranked(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["at"]):
        found.setdefault(row["k"], []).append(row)
    return found


def test_a_tree_gives_them_if_asked() -> None:
    world, counts = tree_counts("central", incomplete="emit")
    rows = [row for name in WINDOWS for row in final(world.deliveries, name)]
    assert sum(not row["complete"] for row in rows) == counts["open_windows"] > 0


@pytest.mark.parametrize("query", READ, ids=lambda query: query.name)
def test_windows_of_streams_that_never_end(query: ct.Query) -> None:
    """Of each stream, events after the last mark that opened a window which none closed."""
    given = {name: batches(seed, 60) for seed, name in enumerate("ab")}
    world = World(charter(FLAT, [query]), given, until=0)
    world.run()
    root = world.sites["root"].member
    assert root is not None
    window: Any = query.window
    expected = 0
    for tables in given.values():
        rows = [row for table in tables for row in table.to_pylist()]
        for key in {row["k"] for row in rows} if query.by else [None]:
            inside, held = False, 0
            for place, row in enumerate(r for r in rows if key is None or r["k"] == key):
                opens = f"m = '{row['m']}'" == window.opens
                closes = window.closes is not None and f"m = '{row['m']}'" == window.closes
                if window.closes is None:
                    inside, held = True, 0 if opens or place == 0 else held
                elif inside and closes:
                    inside, held = False, 0
                elif opens and not inside:
                    inside, held = True, 0
                held += inside
            expected += held
    counts = root.machine.counts  # type: ignore[union-attr]
    assert counts["open_events"] == expected
