"""What queries make of aggregates: expressions, HAVING, first rows, sets of keys, computed keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from against_oracle import check
from catchment.engine import subtotals
from catchment.model.definition import digest_of, next_definitions
from catchment.model.query import Aggregate, Expression, Ordering
from catchment.operators import OperatorRef
from catchment.planner.group import operators_of
from catchment.testing.strategies import Scenario, scenarios

COUNT = Aggregate("count")


# -- random, against brute force -------------------------------------------------------------------


@given(data=st.data())
def test_outputs_of_any_queries(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(readings=["global"]))
    check(_with_outputs(scenario, data))


@given(data=st.data())
def test_outputs_across_snapshots(data: st.DataObject) -> None:
    scenario = data.draw(scenarios(readings=["global"]))
    check(_with_outputs(scenario, data), lambda engine: ct.Engine.restore(engine.snapshot()))


def _with_outputs(scenario: Scenario, data: st.DataObject) -> Scenario:
    late = scenario.settings["late"]
    return replace(scenario, queries=[_with_output(q, late, data) for q in scenario.queries])


def _with_output(query: ct.Query, late: str, data: st.DataObject) -> ct.Query:
    """The query with something made of its aggregates."""
    n = "`count(*)`"
    many = data.draw(st.integers(0, 3))
    columns: list[Any] = list(query.aggregates)
    first = query.aggregates[0]
    shown = f"CASE WHEN {n} > {many} THEN `{first.text.replace('`', '``')}` END"
    columns.append(Expression(shown, (first, COUNT), "shown"))
    columns.append(Expression(f"{n} * 2 - {n} % 2", (COUNT,), "even"))
    options: dict[str, Any] = {"by": query.by, "where": query.where}
    options |= {"distinct_on": query.distinct_on, "distinct_within": f"{query.distinct_within}us"}
    if data.draw(st.booleans()):
        options["having"] = Expression(f"{n} > {many} OR even = 2", (COUNT,))
    if "k" in query.by and data.draw(st.booleans()):
        keys = {"k": {"is_a": "coalesce(k = 'a', FALSE)"}}
        options["by"] = [keys.get(key, key) for key in query.by]
    if query.window.periods and late != "update":
        if data.draw(st.booleans()):
            down, first_null = data.draw(st.booleans()), data.draw(st.none() | st.booleans())
            options["order_by"] = [Ordering(Expression(n, (COUNT,)), down, first_null)]
            options["limit"] = data.draw(st.none() | st.integers(1, 3))
        if query.by and data.draw(st.booleans()):
            names = [key if isinstance(key, str) else "is_a" for key in options["by"]]
            options["grouping_sets"] = [names, names[:1], []][: data.draw(st.integers(2, 3))]
            if len(names) == 1:
                options["grouping_sets"] = [names, []]
    return ct.Query(query.name, *columns, window=query.window, **options)


# -- the same in SQL, Python and YAML --------------------------------------------------------------

SQL = """
SELECT site, upper(kind) AS kind_of, round(sum(a) / sum(b), 2) AS ratio, count(*) AS n
FROM events WHERE a > 0
GROUP BY site, upper(kind), window(ts, '10 seconds')
HAVING count(*) > 3 AND ratio < 1
ORDER BY ratio DESC, site LIMIT 5
"""
PYTHON = ct.Query(
    "q",
    ct.expr("round(sum(a) / sum(b), 2) AS ratio"),
    ct.count().alias("n"),
    by=["site", {"kind_of": "upper(kind)"}],
    where="a > 0",
    window=ct.tumbling("10s"),
    having=ct.expr("count(*) > 3 AND ratio < 1"),
    order_by=[ct.order("ratio DESC"), "site"],
    limit=5,
)
YAML = """
queries:
  - name: q
    select: ["round(sum(a) / sum(b), 2) AS ratio", count(*) AS n]
    by: [site, {kind_of: upper(kind)}]
    where: a > 0
    window: tumbling(10s)
    having: count(*) > 3 AND ratio < 1
    order_by: [ratio DESC, site]
    limit: 5
"""


def test_sql_python_and_yaml_say_the_same() -> None:
    (section,) = ct.load_job(YAML).queries
    assert ct.sql(SQL, "q") == PYTHON == section.build("queries[0]")


def test_a_query_goes_over_the_wire_as_it_is() -> None:
    rolled = ct.sql(
        "SELECT k, sum(v) / 2 AS h FROM e GROUP BY ROLLUP(k, j), window(ts, '1s') HAVING h > 1", "r"
    )
    for query in (PYTHON, rolled):
        assert ct.Query.from_dict(query.to_dict()) == query
        assert ct.Query.from_dict(query.to_dict()).identity == query.identity
    plan = ct.plan([PYTHON])
    assert ct.Plan.from_bytes(plan.to_bytes()) == plan


def test_what_has_no_output_is_written_down_as_before() -> None:
    plain = ct.Query("q", ct.sum("v").alias("s"), by="k", window=ct.tumbling("1s"))
    assert not {"output", "computed"} & plain.to_dict().keys()


@pytest.mark.parametrize(
    "other",
    [
        {"having": "n > 2"},
        {"having": "n > 1", "order_by": "n"},
        {"having": "n > 1", "order_by": "n", "limit": 1},
        {"having": "n > 1", "by": [{"k": "upper(k)"}]},
        {"having": "n > 1", "grouping_sets": [["k"], []]},
    ],
)
def test_another_output_is_another_definition(other: dict[str, Any]) -> None:
    def made(**options: Any) -> ct.Query:
        return ct.Query("q", ct.count().alias("n"), window=ct.tumbling("1s"), **options)

    one, two = made(by="k", having="n > 1"), made(**({"by": "k"} | other))
    assert digest_of(one) != digest_of(two)
    known = next_definitions(next_definitions({}, {"q": one}), {"q": two})
    assert known["q"].version == 2


# -- sharing ---------------------------------------------------------------------------------------


def test_queries_share_aggregates_whatever_they_make_of_them() -> None:
    queries = [
        ct.Query("a", ct.sum("v"), by="k", window=ct.tumbling("10s")),
        ct.Query("b", ct.expr("sum(v) / count(*) AS m"), by="k", window=ct.tumbling("10s")),
        ct.Query("c", ct.avg("v"), by="k", window=ct.tumbling("5s"), having="`avg(v)` > 1"),
    ]
    (group,) = ct.plan(queries).groups
    assert {ref.id for ref in operators_of(group.answers)} == {"sum(v)", "count(v)", "count(*)"}
    assert [OperatorRef(*ref).id for ref in group.operators] == ["sum(v)", "count(v)", "count(*)"]


def test_keys_are_shared_by_what_they_are_and_not_by_their_names() -> None:
    def made(name: str, key: dict[str, str]) -> ct.Query:
        return ct.Query(name, ct.sum("v"), by=key, window=ct.tumbling("1s"))

    plan = ct.plan(
        [
            made("a", {"x": "upper(k)"}),
            made("b", {"y": "UPPER(k)"}),
            made("c", {"x": "lower(k)"}),
            made("d", {"z": "k"}),
            ct.Query("e", ct.sum("v"), by="k", window=ct.tumbling("1s")),
        ]
    )
    assert [(group.by, group.computed) for group in plan.groups] == [
        (("upper(k)",), ("upper(k)",)),
        (("lower(k)",), ("lower(k)",)),
        (("k",), ()),
    ]
    assert plan.names["a"][0] == plan.names["b"][0] and plan.names["d"][0] == plan.names["e"][0]


# -- an engine -------------------------------------------------------------------------------------

S = 1_000_000


def table(*rows: tuple[int, Any, Any]) -> pa.Table:
    times, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "ts": pa.array([t * S for t in times], pa.timestamp("us", "UTC")),
            "k": pa.array(keys, pa.string()),
            "v": pa.array(values, pa.int64()),
        }
    )


def shown(results: ct.Results, name: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in results[name].to_pylist()]


def test_a_query_with_an_output_joins_while_others_run() -> None:
    """events 1 2 | added | 11 12 : its first window is [10, 20)"""
    engine = ct.Engine([ct.Query("all", ct.sum("v"), by="k", window=ct.tumbling("10s"))])
    engine.push(table((1, "a", 1), (2, "b", 2)))
    top = ct.sql(
        "SELECT k, sum(v) * 10 AS t FROM events GROUP BY k, window(ts, '10s') "
        "ORDER BY t DESC LIMIT 1",
        "top",
    )
    engine.add(top)
    engine.push(table((11, "a", 3), (12, "b", 2)))
    found = engine.close()
    assert shown(found, "top", "k", "t") == [("a", 30)]
    assert len(found["all"]) == 4


def test_rows_that_do_not_meet_having_are_no_results() -> None:
    query = ct.sql("SELECT k, sum(v) s FROM e GROUP BY k, window(ts, '10s') HAVING s > 5", "q")
    engine = ct.Engine(
        [ct.Query("other", ct.count(), window=ct.tumbling("10s")), replaced_table(query)]
    )
    engine.push(table((1, "a", 1), (2, "b", 2)))
    found = engine.advance(10 * S)
    assert "q" not in found and list(found) == ["other"]
    assert (len(found), found.rows(), len(found["q"])) == (1, 1, 0)
    assert found["q"].schema.names == ["k", "window_start", "window_end", "s"]


def replaced_table(query: ct.Query) -> ct.Query:
    return ct.Query.from_dict(query.to_dict() | {"table": None})


def test_aggregates_may_stand_in_having_and_order_by() -> None:
    query = ct.Query(
        "q",
        ct.sum("v").alias("s"),
        by="k",
        window=ct.tumbling("10s"),
        having=ct.expr("max(v) > 1"),
        order_by=[Ordering(ct.count(), descending=True), ct.min("v")],
    )
    engine = ct.Engine([query])
    engine.push(table((1, "a", 1), (2, "b", 2), (3, "c", 1), (4, "c", 2), (5, "d", 3)))
    assert shown(engine.close(), "q", "k", "s") == [("c", 3), ("b", 2), ("d", 3)]


def test_a_key_alone_is_a_query() -> None:
    query = ct.sql("SELECT k FROM events GROUP BY k, window(ts, '10s')", "q")
    engine = ct.Engine([query])
    engine.push(table((1, "a", 1), (2, "b", 2), (3, "a", None)))
    assert shown(engine.close(), "q", "k") == [("a",), ("b",)]


def test_types_are_known_before_there_are_events() -> None:
    engine = ct.Engine([PYTHON])
    names = ["site", "kind_of", "window_start", "window_end", "ratio", "n"]
    assert engine.advance(0)["q"].schema.names == names


@pytest.mark.parametrize("late", ["drop", "update"])
def test_duplicates_are_dropped_before_keys_are_computed(late: Any) -> None:
    query = ct.Query(
        "q",
        ct.count().alias("n"),
        by={"second": "second(ts)"},
        window=ct.tumbling("10s"),
        distinct_on="v",
    )
    engine = ct.Engine([query], late=late)
    engine.push(table((1, "a", 1), (1, "b", 1), (2, "a", 2)))
    assert shown(engine.close(), "q", "second", "n") == [(1, 1), (2, 1)]


# -- mistakes --------------------------------------------------------------------------------------

SCHEMA = table().schema
W = "window(ts, '10s')"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"SELECT sum(v) + k AS x FROM events GROUP BY k, {W}",
            "+ needs numbers, not int64 and string (given: `sum(v)` + k); convert with CAST",
        ),
        (
            f"SELECT sum(w) / 2 AS x FROM events GROUP BY k, {W}",
            "query 'q': no such column (given: w); known: k, ts, v",
        ),
        (
            f"SELECT upper(kk) AS x, sum(v) FROM events GROUP BY upper(kk), {W}",
            "query 'q': no such column (given: kk); did you mean 'k'?",
        ),
        (
            f"SELECT upper(v) AS x, sum(v) FROM events GROUP BY upper(v), {W}",
            "UPPER needs text, not int64 (given: upper(v))",
        ),
        (
            f"SELECT upper(k) AS v, count(*) FROM events GROUP BY upper(k), {W}",
            "query 'q': a key is ambiguous: events have a column of its name (given: v for upper(k",
        ),
        (
            f"SELECT hour(k) AS x, count(*) FROM events GROUP BY hour(k), {W}",
            "HOUR needs a time, not string (given: hour(k))",
        ),
        (
            f"SELECT sum(v) FROM events GROUP BY k, {W} HAVING sum(v)",
            "query 'q': the having condition is not a condition (given: `sum(v)` is int64); comp",
        ),
        (
            f"SELECT percentile(v, array(0.5)) AS p FROM events GROUP BY k, {W} ORDER BY p LIMIT 1",
            "query 'q': nothing can be ordered by such values (given: `quantiles(v, 0.5)` is list",
        ),
    ],
)
def test_what_does_not_fit_the_events(text: str, message: str) -> None:
    with pytest.raises(ct.SchemaError) as caught:
        ct.Engine([ct.sql(text, "q")], schema=SCHEMA)
    assert str(caught.value).startswith(message)


def made(*selected: Any, **options: Any) -> ct.Query:
    return ct.Query("q", *selected, **({"window": ct.tumbling("1s"), "by": "k"} | options))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: made(ct.sum("v").alias("s"), having="t > 1"),
            "query 'q': the having condition names what is no column of the results (given: t)",
        ),
        (
            lambda: made(ct.sum("v").alias("s"), having="1 = 1"),
            "query 'q': the having condition says nothing of the results (given: 1 = 1); compare",
        ),
        (
            lambda: made(ct.sum("v"), limit=3),
            "query 'q' has a limit and no order (given: LIMIT 3); say which rows come first, as",
        ),
        (
            lambda: made(ct.sum("v"), order_by="k", limit=0),
            "query 'q': the limit must be a positive whole number (given: 0)",
        ),
        (
            lambda: made(ct.sum("v"), order_by="k", window=ct.session("1s")),
            "query 'q': ORDER BY needs windows that are the same for all keys (given: session(1s)",
        ),
        (
            lambda: made(ct.sum("v"), grouping_sets=[["k"], []], window=ct.count_tumbling(3)),
            "query 'q': subtotals over keys need windows that are the same for all keys (given:",
        ),
        (
            lambda: made(ct.sum("v"), grouping_sets=[["k"], ["j"]]),
            "query 'q': a set of keys names what is no key (given: j); known: k",
        ),
        (
            lambda: made(ct.sum("v"), grouping_sets=[["k"], ["k"]]),
            "query 'q' has one set of keys twice (given: (k), (k)); leave out one of them",
        ),
        (
            lambda: made(ct.sum("v"), ct.expr("sum(v) / 2 AS k")),
            "query 'q' has two result columns of one name (given: k); give one another name",
        ),
        (
            lambda: made(ct.sum("v"), by=["k", {"k": "upper(k)"}]),
            "by names a column twice (given: k, k)",
        ),
        (
            lambda: made(ct.sum("v"), by={"h": "hour("}),
            "the key h does not parse (given: hour()",
        ),
        (
            lambda: made(ct.sum("v"), having=5),
            "the having condition must be a text (given: 5); write an SQL expression, as in",
        ),
        (
            lambda: made(ct.sum("v"), order_by=5),
            "order_by takes names of results, expressions and aggregates (given: 5); try order_by",
        ),
        (
            lambda: made(ct.sum("v"), grouping_sets=["k"]),
            "grouping_sets takes lists of keys (given: ['k']); try grouping_sets=[[",
        ),
        (lambda: made("sum(v)"), "query 'q': not an aggregate (given: 'sum(v)'); try ct.avg("),
        (lambda: made(by=()), "query 'q' computes nothing; add an aggregate, as in ct.avg"),
        (lambda: ct.expr("sum(v), 2"), "not one expression (given: sum(v), 2)"),
        (lambda: ct.order("a, b"), "not one order (given: a, b); try count(*) DESC"),
        (
            lambda: ct.sql(
                "SELECT sum(v) FROM e GROUP BY CUBE(a,b,c,d,e,f,g,h,i,j,k), window(ts, '1s')", "q"
            ),
            "GROUP BY stands for too many sets of keys (given: 2,048 sets); at most 1,024; list",
        ),
        (
            lambda: ct.sql(
                "SELECT sum(v) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts))) "
                "GROUP BY window_start",
                "q",
            ),
            "TUMBLE in FROM has the wrong arguments; write TABLE(TUMBLE(TABLE events, DESCRIPTOR(",
        ),
        (
            lambda: ct.sql(
                "SELECT sum(v) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), "
                "INTERVAL '1' SECOND)) GROUP BY k",
                "q",
            ),
            "the window in FROM is not grouped by (given: window(ts, INTERVAL '1' SECOND, INTERVAL",
        ),
        (
            lambda: ct.sql(
                "SELECT sum(v) FROM TABLE(SESSION(TABLE events PARTITION BY j, "
                "DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
                "GROUP BY k, window_start, window_end",
                "q",
            ),
            "sessions are partitioned by other columns than GROUP BY has (given: PARTITION BY j);",
        ),
    ],
)
def test_mistakes(build: Any, message: str) -> None:
    with pytest.raises(ct.QueryError) as caught:
        build()
    assert str(caught.value).startswith(message)


def test_late_events_cannot_correct_whole_windows() -> None:
    query = made(ct.sum("v"), order_by="k")
    with pytest.raises(ct.QueryError) as caught:
        ct.Engine([query], late="update")
    assert str(caught.value).startswith(
        "query 'q': the first rows of a window and subtotals over keys cannot be corrected by late"
    )


def test_functions_of_the_order_of_events_have_no_subtotals() -> None:
    joined = ct.function(
        "outputs_test_joined",
        lift=str,
        combine=lambda a, b: a + b,
        lower=lambda a: a,
        result=pa.string(),
        commutative=False,
    )
    with pytest.raises(ct.QueryError, match="the order of events matters to a function"):
        ct.plan([made(joined("v"), grouping_sets=[["k"], []])])


# -- windows in FROM -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECONDS)", ct.tumbling("10s")),
        (
            (
                "TUMBLE(DATA => TABLE events, TIMECOL => DESCRIPTOR(ts), "
                "SIZE => INTERVAL '10' SECONDS, OFFSET => INTERVAL '1' SECOND)"
            ),
            ct.tumbling("10s", offset="1s"),
        ),
        (
            "HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECONDS, INTERVAL '10' SECONDS)",
            ct.sliding("10s", "5s"),
        ),
        (
            "CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
            ct.cumulate("1h", "1m"),
        ),
        (
            "SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES)",
            ct.session("5m"),
        ),
    ],
)
def test_windows_in_from(call: str, window: Any) -> None:
    for table in (f"TABLE({call})", call, f"table({call}) AS t"):
        text = f"SELECT k, sum(v) AS s FROM {table} GROUP BY k, window_start, window_end"
        query = ct.sql(text, "q")
        assert query == ct.Query("q", ct.sum("v").alias("s"), by="k", window=window)
        assert (query.time, query.table) == ("ts", None)


def test_sets_of_keys_are_bounded() -> None:
    """Of several cubes too, before their sets are made; whichever way a query comes."""
    names = [f"k{n}" for n in range(60)]
    cubes = [f"CUBE({', '.join(names[at : at + 10])})" for at in range(0, 60, 10)]
    for some in (cubes[:2], cubes, [f"CUBE({', '.join(names)})"]):
        text = f"SELECT count(*) FROM events GROUP BY {', '.join(some)}, window(ts, '1 hour')"
        with pytest.raises(ct.QueryError, match=r"too many sets of keys .*; at most 1,024"):
            ct.sql(text, "q")
    sets = [[name] for name in names] + [[a, b] for a in names for b in names if a < b]
    with pytest.raises(ct.QueryError, match=r"too many sets of keys \(given: 1,830 sets\)"):
        ct.Query("q", ct.count(), by=names, window=ct.tumbling("1h"), grouping_sets=sets)


def test_subtotals_that_memory_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtotals, "machine_memory", lambda: 100_000)
    text = "SELECT count(*) AS n FROM events GROUP BY CUBE(a, b, c), window(ts, '1 hour')"
    engine = ct.Engine([ct.sql(text, "q")])
    many = list(range(40))
    engine.push(
        pa.table({"ts": pa.array(many, pa.timestamp("us")), "a": many, "b": many, "c": many})
    )
    with pytest.raises(ct.LimitError) as caught:
        engine.close()["q"]
    assert "more rows than memory has room for (given: 200 rows, at most 195)" in str(caught.value)
