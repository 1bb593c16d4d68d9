"""PostgreSQL: each key and window is one row, whoever writes it and however often."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from catchment.errors import SinkError
from catchment.sinks import postgres_tables
from catchment.sinks.naming import index_name, table_name
from catchment.sinks.postgres import PostgresSink
from servers import Postgres
from sink_rows import (
    BATCHES,
    ODD,
    QUERIES,
    ROWS,
    TYPES,
    Child,
    at,
    child_delivery,
    delivery,
    every_type,
    killed_and_repeated,
    rows,
)

LAYOUTS = ["per-query", "long"]


class Base:
    """A schema of its own, and sinks into it."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.schema = f'it\'s "{uuid4().hex[:8]}"'
        self.sinks: list[PostgresSink] = []
        self.run(f"CREATE SCHEMA {self.quoted}")

    @property
    def quoted(self) -> str:
        return '"' + self.schema.replace('"', '""') + '"'

    def sink(self, **options: Any) -> PostgresSink:
        given = {"dsn": self.server.dsn, "schema": self.schema} | options
        self.sinks.append(PostgresSink(**given))
        return self.sinks[-1]

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(self.server.dsn) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def table(self, name: str, what: str = "*") -> list[Any]:
        # The table of all queries is no query's.
        name = name if name == "results" else table_name("", name)
        name = '"' + name.replace('"', '""') + '"'
        return self.run(f"SELECT {what} FROM {self.quoted}.{name} ORDER BY 1, 2, 3")

    def count(self, *tables: str) -> int:
        return sum(self.table(name, "count(*), 0, 0")[0][0] for name in tables)


@pytest.fixture
def base(postgres: Postgres) -> Iterator[Base]:
    made = Base(postgres)
    yield made
    for sink in made.sinks:
        sink.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_delivery_counts_once(base: Base, layout: str) -> None:
    sink = base.sink(layout=layout, prefix="p_")
    sink.check()
    for _ in range(2):
        sink.write(child_delivery("job", 3))
    tables = ["p_results"] if layout == "long" else [f"p_q{n}" for n in range(QUERIES)]
    assert base.count(*tables) == QUERIES * ROWS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_older_revision_never_takes_the_place_of_a_newer(base: Base, layout: str) -> None:
    sink = base.sink(layout=layout)
    for batch, revision in enumerate([0, 2, 1]):
        sink.write(delivery({"q": rows([None, "b"], [revision, 0], revision=revision)}, batch))
    sink.write(delivery({"q": rows(["b"], [None], revision=3, retracted=True)}, 3))
    if layout == "per-query":
        found = base.table("q", '"user", revision, "sum(v)", retracted')
        assert found == [("b", 3, None, True), (None, 2, 2, False)]
    else:
        found = base.table("results", "key, revision, values, retracted")
        assert sorted(found, key=lambda row: row[1]) == [
            ({"user": None}, 2, {"sum(v)": 2}, False),
            ({"user": "b"}, 3, {"sum(v)": None}, True),
        ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_revisions_in_one_delivery(base: Base, layout: str) -> None:
    sink = base.sink(layout=layout)
    tables = [rows(["a"], [n], revision=n) for n in (1, 2, 0)]
    sink.write(delivery({"q": pa.concat_tables(tables)}))
    assert base.table("q" if layout == "per-query" else "results", "revision, 0, 0") == [(2, 0, 0)]


def test_every_type(base: Base) -> None:
    base.sink().write(delivery({"q": every_type()}))
    for name, (_, value, text) in TYPES.items():
        if name != "nothing":
            found = [v for v, *_ in base.table("q", f'"{name}", "user", 0')]
            wanted = text if name == "map" else value
            assert sorted(found, key=lambda v: v is None) == [wanted, wanted, None], name
    kept = base.table("q", '"user", "sum(v)" = \'NaN\', 0')
    assert kept == [("a", False, 0), ("b", True, 0), (None, None, 0)]


def test_every_type_in_the_long_layout(base: Base) -> None:
    base.sink(layout="long").write(delivery({"q": every_type()}))
    (found,) = [row[1] for row in base.table("results", "key->>'user', values, 0") if row[0] == "a"]
    wanted = {name: text for name, (_, _, text) in TYPES.items()}
    assert found == {"sum(v)": 1.0} | wanted | {"bytes": "\\x00ff"}


def test_null_keys_and_no_keys_and_count_windows(base: Base) -> None:
    sink = base.sink()
    counted = rows([None, None], [1, 2]).append_column("window_index", pa.array([7, 8]))
    for _ in range(2):
        sink.write(delivery({"q": counted}))
        sink.write(delivery({"n": rows(["a"], [3]).drop_columns("user")}, keys=()))
    assert base.table("q", 'window_index, "sum(v)", 0') == [(7, 1, 0), (8, 2, 0)]
    assert base.table("n") == [(at(0), at(1), 3)]


def test_keys_of_every_kind(base: Base) -> None:
    """Each type as a key, of which a null is one, too."""
    sink = base.sink()
    table = every_type().drop_columns("user")
    for name in TYPES:
        for _ in range(2):
            sink.write(delivery({name: table.slice(0, 2)}, keys=(name,)))
        assert base.count(name) == (1 if name == "nothing" else 2), name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_names(base: Base, layout: str) -> None:
    sink = base.sink(layout=layout, prefix="%s ")
    tables = {name: rows(["a"], [n]) for n, name in enumerate(ODD)}
    odd = rows(["a"], [0]).append_column("xmin", pa.array([1])).append_column("%s" * 50, [[2]])
    for _ in range(2):
        sink.write(delivery(tables | {"columns": odd}))
    if layout == "long":
        found = {row[0]: row[1]["sum(v)"] for row in base.table("%s results", "query, values, 0")}
        assert found == {name: n for n, name in enumerate(ODD)} | {"columns": 0}
    else:
        for number, name in enumerate(ODD):
            assert base.table(f"%s {name}", '"sum(v)", 0, 0') == [(number, 0, 0)]
        assert base.table("%s columns")[0][-2:] == (1, 2)


ALIKE = ("xmin", "xmin_", "ctid", "A", "a", "a\0b", "a\u2400b", "x" * 80 + "1", "x" * 80 + "2")
"""Names that PostgreSQL keeps for itself, folds, cuts off or does not take."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_two_names_become_one(base: Base, layout: str) -> None:
    """As columns, as tables (of which one is that of all results), and as keys."""
    names = (*ALIKE, "results", "results_")
    wide = rows(["a"], [0])
    for number, name in enumerate(ALIKE):
        wide = wide.append_column(name, pa.array([number]))
    tables = {name: rows(ALIKE, [number] * len(ALIKE)) for number, name in enumerate(names)}
    for _ in range(2):
        base.sink(layout=layout).write(delivery(tables | {"wide": wide}))
    if layout == "long":
        found = base.table("results", "query, values, key")
        assert len(found) == len(names) * len(ALIKE) + 1
        assert len({query for query, *_ in found}) == len(names) + 1
        (held,) = [values for query, values, _ in found if query == "wide"]
        assert sorted(held.values()) == sorted([0, *range(len(ALIKE))])
        return
    assert base.table("wide")[0][3:] == (0, *range(len(ALIKE)))
    for number, name in enumerate(names):
        there = table_name("", name)
        found = base.run(
            f'SELECT DISTINCT "sum(v)", count(*) FROM {base.quoted}."{there}" GROUP BY 1'
        )
        assert found == [(number, len(ALIKE))]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_of_equal_bounds_are_rows_of_their_own(base: Base, layout: str) -> None:
    """Marks at one instant; the second of three windows is revised, the third is retracted."""
    sink, name = base.sink(layout=layout), "q" if layout == "per-query" else "results"
    value = '"sum(v)"' if layout == "per-query" else "values->'sum(v)'"

    def numbered(values: list[Any], indexes: list[int], **options: Any) -> pa.Table:
        table = rows(["a"] * len(indexes), values, **options)
        return table.add_column(3, "window_index", pa.array(indexes, pa.int64()))

    sink.write(delivery({"q": numbered([1, 2, 4], [0, 1, 2], revision=0)}, 0))
    sink.write(delivery({"q": numbered([8], [1], revision=1)}, 1))
    gone = numbered(pa.nulls(1, pa.int64()), [2], revision=1, retracted=True)
    sink.write(delivery({"q": gone}, 2))
    found = base.table(name, f"window_index, revision, retracted, {value}")
    assert found == [(0, 0, False, 1), (1, 1, False, 8), (2, 1, True, None)]


def test_a_table_that_knows_no_index_is_refused(base: Base) -> None:
    """As older versions made them for windows bounded by marks."""
    sink = base.sink()
    sink.write(delivery({"q": rows(["a"], [1])}, 0))
    marked = rows(["a"], [2]).append_column("window_index", pa.array([1]))
    with pytest.raises(SinkError, match=r"'q' cannot tell windows of equal bounds apart.*rename"):
        sink.write(delivery({"q": marked}, 1))
    base.run(f"ALTER TABLE {base.quoted}.q ADD window_index bigint NOT NULL DEFAULT 0")
    index = index_name("q", ("user", "window_start", "window_end"))
    base.run(f'DROP INDEX {base.quoted}."{index}"')
    sink.write(delivery({"q": marked}, 1))
    assert base.table("q", 'window_index, "sum(v)", 0') == [(0, 1, 0), (1, 2, 0)]


def test_a_nul_in_a_text(base: Base) -> None:
    for layout in LAYOUTS:
        base.sink(layout=layout).write(delivery({"q": rows(["a\0b", "\\u0000"], [1, 2])}))
    assert base.table("q", '"user", 0, 0') == [("\\u0000", 0, 0), ("a\u2400b", 0, 0)]


def test_columns_are_added_and_types_become_known(base: Base) -> None:
    sink = base.sink()
    sink.write(delivery({"q": rows(["a"], pa.nulls(1))}, 0))
    sink.write(delivery({"q": rows(["b"], [1.5], revision=1)}, 1))
    assert base.table("q", '"user", "sum(v)", revision') == [("a", None, None), ("b", 1.5, 1)]


def test_a_table_that_does_not_fit_is_named(base: Base) -> None:
    sink = base.sink()
    base.run(
        f'CREATE TABLE {base.quoted}.q ("user" text, window_start timestamptz,'
        ' window_end timestamptz, "sum(v)" integer)'
    )
    with pytest.raises(SinkError, match=r"'q' does not fit .*'sum\(v\)': integer instead of dou"):
        sink.write(delivery({"q": rows(["a"], [1.5])}))
    base.run(f'CREATE TABLE {base.quoted}.r ("sum(v)" bigint)')
    with pytest.raises(SinkError, match=r"'r' does not fit .*'user': missing instead of text"):
        sink.write(delivery({"r": rows(["a"], [1])}))


def test_a_table_that_was_dropped_is_made_again(base: Base) -> None:
    sink = base.sink()
    sink.write(delivery({"q": rows(["a"], [1])}))
    base.run(f"DROP TABLE {base.quoted}.q")
    sink.write(delivery({"q": rows(["b"], [1])}, 1))
    assert base.table("q", '"user", 0, 0') == [("b", 0, 0)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed_at_any_moment(base: Base, layout: str) -> None:
    killed_and_repeated(base.sink(layout=layout), "job")
    tables = ["results"] if layout == "long" else [f"q{n}" for n in range(QUERIES)]
    assert base.count(*tables) == BATCHES * QUERIES * ROWS


def test_three_write_the_same(base: Base) -> None:
    sink = base.sink()
    for child in [Child(sink, "job") for _ in range(3)]:
        assert child.end() == list(range(BATCHES))
    assert base.count(*(f"q{n}" for n in range(QUERIES))) == BATCHES * QUERIES * ROWS


def test_a_delivery_is_there_whole_or_not_at_all(base: Base) -> None:
    sink = base.sink()
    sink.write(delivery({"a": rows(["x"], [1]), "b": rows(["x"], [1])}))
    base.run(f'ALTER TABLE {base.quoted}.b ADD CHECK ("sum(v)" < 5)')
    with pytest.raises(SinkError, match=r"refused the results .*check constraint"):
        sink.write(delivery({"a": rows(["y"], [9]), "b": rows(["y"], [9])}, 1))
    assert base.count("a") == 1


def test_the_server_goes_and_comes_back(base: Base, postgres: Postgres) -> None:
    sink, short = base.sink(), base.sink(timeout="0s")
    sink.write(delivery({"q": rows(["a"], [1])}))
    postgres.stop()
    back = threading.Timer(1, postgres.start)
    try:
        with pytest.raises(SinkError, match="PostgreSQL cannot be reached"):
            short.write(delivery({"q": rows(["b"], [1])}, 1))
        with pytest.raises(SinkError, match="PostgreSQL cannot be reached"):
            sink.check()
        back.start()
        sink.write(delivery({"q": rows(["b"], [1])}, 1))
    finally:
        back.join() if back.ident else postgres.start()
    assert base.count("q") == 2
    postgres.kill()
    postgres.start()
    sink.write(delivery({"q": rows(["c"], [1])}, 2))
    assert base.count("q") == 3


def test_what_check_finds(base: Base, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "password=secret user"
    with pytest.raises(SinkError, match="the dsn cannot be read") as caught:
        base.sink(dsn=wrong).check()
    assert "secret" not in str(caught.value) and "secret" not in repr(base.sinks[-1])
    with pytest.raises(SinkError, match=r"given: u@127.0.0.1:\d+/nope\).*does not exist"):
        base.sink(dsn=f"postgresql://u:secret@127.0.0.1:{postgres.port}/nope").check()
    with pytest.raises(SinkError, match=r"the schema is not there, .*CREATE SCHEMA \"no\""):
        base.sink(schema="no").check()
    base.run(f"CREATE ROLE {(role := f'r{uuid4().hex[:8]}')} LOGIN")
    sink = base.sink(dsn=postgres.dsn.replace("postgres@", f"{role}@"))
    with pytest.raises(SinkError, match="may not make tables"):
        sink.check()
    with pytest.raises(SinkError, match=r"grant this user what it needs: permission denied"):
        sink.write(delivery({"q": rows(["a"], [1])}))
    monkeypatch.setattr(postgres_tables, "_OLDEST", 99)
    with pytest.raises(SinkError, match="needs PostgreSQL 99 or newer"):
        base.sink().check()


def test_a_key_that_no_index_takes(base: Base) -> None:
    long = os.urandom(20_000).hex()
    with pytest.raises(SinkError, match="a key is too long for an index"):
        base.sink().write(delivery({"q": rows([long], [1])}))


def test_a_lock_that_stays_does_not_hang(base: Base, postgres: Postgres) -> None:
    sink, hasty = base.sink(), base.sink(timeout="1s")
    sink.write(delivery({"q": rows(["a"], [1])}))
    with psycopg.connect(postgres.dsn) as other:
        other.execute(f"LOCK TABLE {base.quoted}.q".encode())
        start = time.monotonic()
        with pytest.raises(SinkError, match="lock timeout"):
            hasty.write(delivery({"q": rows(["b"], [1])}, 1))
    assert time.monotonic() - start < 60
    sink.write(delivery({"q": rows(["b"], [1])}, 1))
    assert base.count("q") == 2


def test_the_schema_is_called_so_in_files_and_namespace_in_python() -> None:
    assert PostgresSink(dsn="", schema="s") == PostgresSink(dsn="", namespace="s")
