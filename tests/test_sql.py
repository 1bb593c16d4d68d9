"""SQL text to queries: the same query as Python writes, the same error for the same mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import catchment as w
from catchment import functions as f
from catchment.errors import CatchmentError, QueryError, SqlError
from catchment.model.query import Query
from catchment.model.rules import QueryRules, bound, refusals
from catchment.model.window import Window
from catchment.sqltext import aggregate, grouping, sql
from catchment.windows import in_sql

IF_LARGE = "CASE WHEN v > 2 THEN 1 END"
TAIL = "FROM events GROUP BY window(ts, '10s')"


def test_the_query_of_the_readme() -> None:
    text = (
        "SELECT player, avg(v) AS mean, percentile(v, 0.95) p95 FROM events WHERE v > 0 "
        "GROUP BY player, window(ts, '10 seconds', '5 seconds')"
    )
    assert sql(text, name="speed") == Query(
        "speed",
        f.avg("v").alias("mean"),
        f.quantile("v", 0.95).alias("p95"),
        by=["player"],
        where="v > 0",
        window=w.sliding("10s", "5s"),
    )


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("window(ts, '10 seconds')", w.tumbling("10s")),
        ("WINDOW(ts, INTERVAL 10 SECONDS)", w.tumbling("10s")),
        ("window(ts, interval '10' second, interval '5' second)", w.sliding("10s", "5s")),
        ("window(ts, '10s', '10s', '2s')", w.tumbling("10s", offset="2s")),
        ("window(ts, '10s', '5s', '1s')", w.sliding("10s", "5s", offset="1s")),
        ("window(ts, '5s', '10s')", w.sliding("5s", "10s")),
        ("session_window(ts, '5 minutes')", w.session("5m")),
        ("cumulate_window(ts, '1 hour', '10 minutes')", w.cumulate("1h", "10m")),
        ("cumulate_window(ts, '1h', '10m', '5m')", w.cumulate("1h", "10m", offset="5m")),
        ("count_window(100)", w.count_tumbling(100)),
        ("count_window(100, 10)", w.count_sliding(100, 10)),
        ("tumbling(ts, '10 seconds', offset => '2s')", w.tumbling("10s", offset="2s")),
        ("SLIDING('10s', INTERVAL 5 SECONDS)", w.sliding("10s", "5s")),
        ("count_tumbling(100)", w.count_tumbling(100)),
        ("cut(v > 9)", w.cut("v > 9")),
        ("cut(door)", w.cut("door")),
        ("cut(ts, door)", w.cut("door")),
        ("cut(door, reading => 'local')", w.cut("door", reading="local")),
        ("cut(ts, at => door)", w.cut("door")),
        ("cut(at => door, reading => 'local')", w.cut("door", reading="local")),
        ("event_window(start => a = 1, end => b > 2)", w.between(start="a = 1", end="b > 2")),
        ("event_window(end => b, start => a)", w.between(start="a", end="b")),
        ("event_window(at => kind = 'lap')", w.cut(at="kind = 'lap'")),
    ],
)
def test_windows(call: str, window: Window) -> None:
    for group in (call, f"k, {call}", f"{call}, k"):
        query = sql(f"SELECT count(*) FROM events GROUP BY {group}", "q")
        assert query.window == window
        assert query.by == (("k",) if "k" in group.split(", ") else ())


@pytest.mark.parametrize(
    ("call", "time"),
    [
        ("tumbling(at, '1s')", "at"),
        ("tumbling('1s')", None),
        ("cut(door)", None),
        ("cut(at, door)", "at"),
        ("cut(at => door)", None),
        ("count_window(5)", None),
        ("count_tumbling(at, 5)", "at"),
        ("cumulate_window(at, '4s', '1s')", "at"),
    ],
)
def test_which_column_is_the_time(call: str, time: str | None) -> None:
    assert sql(f"SELECT count(*) FROM events GROUP BY {call}", "q").time == time


def test_a_window_says_itself_whether_sql_gives_it_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its usage looks like does not matter."""
    monkeypatch.setattr(in_sql, "SQL_CALLS", calls := dict(in_sql.SQL_CALLS))
    monkeypatch.setattr(grouping, "SQL_CALLS", calls)
    in_sql.in_sql("by_hour(event_time)")(lambda: w.tumbling("1h"))
    in_sql.in_sql("fives(tsunami)", takes_time=False)(w.count_tumbling)
    assert sql("SELECT count(*) FROM events GROUP BY by_hour(at)", "q").time == "at"
    fives = sql("SELECT count(*) FROM events GROUP BY fives(5)", "q")
    assert (fives.time, fives.window) == (None, w.count_tumbling(5))


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("sum(v)", f.sum("v")),
        ("SUM(a * b)", f.sum("a * b")),
        ("count(*)", f.count()),
        ("count(1)", f.count()),
        ("count(v)", f.count("v")),
        ("count(DISTINCT v)", f.count_distinct("v")),
        ("avg(v)", f.avg("v")),
        ("mean(v)", f.avg("v")),
        ("min(v)", f.min("v")),
        ("max(v)", f.max("v")),
        ("percentile(v, 0.5)", f.quantile("v", 0.5)),
        ("quantile(v, 0)", f.quantile("v", 0)),
        ("median(v)", f.median("v")),
        ("approx_percentile(v, 0.5)", f.approx_quantile("v", 0.5)),
        ("percentile_approx(v, 0.5)", f.approx_quantile("v", 0.5)),
        ("approx_count_distinct(v)", f.approx_count_distinct("v")),
        ("var_samp(v)", f.variance("v")),
        ("variance(v)", f.variance("v")),
        ("var_pop(v)", f.variance_pop("v")),
        ("stddev(v)", f.stddev("v")),
        ("stddev_samp(v)", f.stddev("v")),
        ("std(v)", f.stddev("v")),
        ("stddev_pop(v)", f.stddev_pop("v")),
        ("first(v)", f.first("v")),
        ("first(v) IGNORE NULLS", f.first("v")),
        ("first(v, true)", f.first("v")),
        ("first_value(v)", f.first("v")),
        ("last(v)", f.last("v")),
        ("last_value(v)", f.last("v")),
        ("mode(v)", f.mode("v")),
        ("product(v)", f.product("v")),
        ("geometric_mean(v)", f.geometric_mean("v")),
        ("range(v)", f.range("v")),
        ("sum(CASE WHEN ok THEN v END)", f.sum("CASE WHEN ok THEN v END")),
        ("sum(coalesce(v, 0) % 2)", f.sum("coalesce(v, 0) % 2")),
        ("sum(`heart rate`)", f.sum("`heart rate`")),
        ("max(events.v)", f.max("v")),
        ("count(*) FILTER (WHERE ok)", f.count("CASE WHEN ok THEN 1 END")),
        ("sum(v) FILTER (WHERE v > 2)", f.sum("CASE WHEN v > 2 THEN v END")),
        ("percentile(v, 0.9) FILTER (WHERE ok)", f.quantile("CASE WHEN ok THEN v END", 0.9)),
        ("first(v) FILTER (WHERE ok)", f.first("CASE WHEN ok THEN v END")),
        ("count_if(v > 2)", f.count("CASE WHEN v > 2 THEN 1 END")),
        ("count_if(v > 2) FILTER (WHERE ok)", f.count(f"CASE WHEN ok THEN {IF_LARGE} END")),
        ("count(a, b)", f.count("CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN 1 END")),
        ("count(DISTINCT a, b)", f.count_distinct("tuple(a, b)")),
        ("count(DISTINCT a) FILTER (WHERE ok)", f.count_distinct("CASE WHEN ok THEN a END")),
        ("sum(DISTINCT v)", f.sum_distinct("v")),
        ("avg(DISTINCT v)", f.avg_distinct("v")),
        ("max(DISTINCT v)", f.max("v")),
        ("percentile(v, array(0.5, 0.9))", f.quantiles("v", 0.5, 0.9)),
        ("percentile_cont(0.25) WITHIN GROUP (ORDER BY v)", f.quantile("v", 0.25)),
        ("percentile_cont(0.25) WITHIN GROUP (ORDER BY v DESC)", f.quantile("v", 0.75)),
        ("percentile_cont(array(0.25, 1)) WITHIN GROUP (ORDER BY v)", f.quantiles("v", 0.25, 1)),
        ("percentile_disc(0.25) WITHIN GROUP (ORDER BY v)", f.quantile_disc("v", 0.25)),
        ("percentile_disc(0.2) WITHIN GROUP (ORDER BY v DESC)", f.quantile_disc("v", 0.2, "desc")),
        ("mode() WITHIN GROUP (ORDER BY v)", f.mode("v")),
        ("sum(datediff(SECOND, a, b))", f.sum("timestampdiff('SECOND', a, b)")),
    ],
)
def test_functions(text: str, made: Any) -> None:
    assert sql(f"SELECT {text} AS x {TAIL}", "q").aggregates == (made.alias("x"),)
    (alone,) = sql(f"SELECT {text} {TAIL}", "q").aggregates
    assert alone.alias("") == made


def test_what_became_another_aggregate_is_called_as_it_was_written() -> None:
    query = sql(f"SELECT count_if(v > 2), count(DISTINCT a, b), sum(v) {TAIL}", "q")
    assert query.columns == ("count_if(v > 2)", "count(DISTINCT a, b)", "sum(v)")


EVENTS = pa.table(
    {
        "ts": pa.array([0, 1, 1, 3, 12], pa.timestamp("s")),
        "late": pa.array([0, 2, 9, 3, None], pa.timestamp("s")),
        "k": ["a", "b", "a", None, "a"],
        "v": [1.0, 2.0, 4.0, 8.0, 16.0],
        "s": pa.array(["y", "x", "y", None, None], pa.large_string()),
        "req": [{"n": n, "host": h} for n, h in zip(range(5), "ppqqr", strict=True)],
    }
)


def found(items: str, tail: str = "") -> list[dict[str, Any]]:
    """What an item is in each of the two windows."""
    text = f"SELECT {items} FROM events GROUP BY window(ts, '10s') {tail}"
    rows: list[dict[str, Any]] = w.run(EVENTS, sql(text, "q"), spark=False)["q"].to_pylist()
    return [{n: row[n] for n in row if not n.startswith("window_")} for row in rows]


@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        ("collect_list(s)[0]", ["y", None]),
        ("percentile(v, array(0.0, 1.0))[1]", [8.0, 16.0]),
        ("top_k(k, 2)[0].item", ["a", "a"]),
        ("max_by(req, v).host", ["q", "r"]),
        ("1 + max_by(req, v)['n']", [4, 5]),
        ("max_by(req, v).host || '!'", ["q!", "r!"]),
        ("listagg(DISTINCT s, '+')", ["x+y", None]),
        ("listagg(s, '+') WITHIN GROUP (ORDER BY s)", ["x+y+y", None]),
        ("string_agg(s) WITHIN GROUP (ORDER BY s DESC) FILTER (WHERE v < 3)", ["yx", None]),
        ("listagg(DISTINCT s, ',') WITHIN GROUP (ORDER BY s DESC)", ["y,x", None]),
        ("approx_percentile(v, array(0.0, 1.0))", [[1.0, 8.0], [16.0, 16.0]]),
        ("approx_percentile(v, array(0.0)) FILTER (WHERE v < 3)", [[1.0], None]),
        ("mode() WITHIN GROUP (ORDER BY s)", ["y", None]),
        ("array_join(sort_array(collect_set(s), false), '-')", ["y-x", ""]),
        ("concat_ws(',', collect_set(s))", ["x,y", ""]),
        ("size(collect_list(v))", [4, 1]),
        ("timestampdiff(SECOND, min(ts), max(ts))", [3, 0]),
        ("timestampdiff(SECOND, WINDOW.START, Window.End)", [10, 10]),
        ("dateadd(MINUTE, 1, max(ts)) > max(late)", [True, None]),
        ("count_if(late - ts > INTERVAL '1' SECOND)", [1, 0]),
        ("'shop'", ["shop", "shop"]),
        ("1 + 1", [2, 2]),
    ],
)
def test_items_of_every_day(item: str, wanted: list[Any]) -> None:
    assert [row["x"] for row in found(f"{item} AS x")] == wanted
    (alone,) = {name for row in found(item) for name in row}
    assert found(f"{item} AS x, count(*) AS n", "HAVING x IS NOT NULL AND n > 0") == [
        {"x": value, "n": n} for value, n in zip(wanted, (4, 1), strict=True) if value is not None
    ]
    if "WITHIN" not in item:  # sqlglot writes a space there
        assert alone.replace(" ", "").lower() == item.replace(" ", "").lower()


def test_parts_of_results_that_are_not_there() -> None:
    for item, message in (
        ("collect_list(v).x", "is a list, and has no fields"),
        ("max_by(req, v).nothing", "its fields are n, host"),
        ("sum(v).x", "has no fields"),
        ("kk[0]", "SQL selects a column that is not a key"),
    ):
        with pytest.raises(CatchmentError, match=message):
            found(f"{item} AS x")


def test_group_by_all() -> None:
    text = (
        "SELECT upper(k) AS u, window(ts, '10s') AS w, sum(v) AS s, 'x' AS c FROM events GROUP BY "
    )
    rows = [
        w.run(EVENTS, sql(text + keys, "q"), spark=False)["q"].to_pylist()
        for keys in ("ALL", "u, window(ts, '10s')")
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 4


def test_grouping_id_of_all_keys() -> None:
    tail = "FROM events GROUP BY CUBE(k, s), window(ts, '10s')"
    query = sql(f"SELECT grouping_id(k, s) AS g, count(*) AS n {tail}", "q")
    assert query == sql(f"SELECT grouping_id() AS g, count(*) AS n {tail}", "q")
    with pytest.raises(SqlError, match="grouping_id has the wrong arguments"):
        sql(f"SELECT grouping_id(s, k) AS g, count(*) AS n {tail}", "q")


def test_order_by_window() -> None:
    text = "SELECT k, sum(v) AS s FROM events GROUP BY k, window(ts, '10s') ORDER BY window, s DESC"
    rows = w.run(EVENTS, sql(text, "q"), spark=False)["q"].to_pylist()
    assert [row["s"] for row in rows] == [8.0, 5.0, 2.0, 16.0]


def test_a_function_of_the_user_goes_by_its_name() -> None:
    norm = f.function(
        "sql_test_norm", lift=lambda v: v * v, combine=lambda a, b: a + b, lower=lambda a: a
    )
    assert sql(f"SELECT sql_test_norm(v) {TAIL}", "q").aggregates == (norm("v"),)


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ("window", "window"),
        ("window(ts, '10s')", "window"),
        ("window(ts, '10s') AS w", "w"),
        ("window AS w", "w"),
    ],
)
def test_the_window_in_select_is_a_struct_of_its_bounds(items: str, name: str) -> None:
    events = pa.table({"ts": pa.array([1, 12], pa.timestamp("s")), "v": [1, 2]})
    text = f"SELECT {items}, sum(v) AS s FROM events GROUP BY window(ts, '10s')"
    found = w.run(events, sql(text, "q"), spark=False)["q"]
    rows = found.to_pylist()
    assert [row["s"] for row in rows] == [1, 2]
    for row in rows:
        assert row[name] == {"start": row["window_start"], "end": row["window_end"]}


def test_keys_and_bounds_in_select_are_what_results_carry_anyway() -> None:
    text = (
        "SELECT k, window.start, window.end AS window_end, window_start, window_index, sum(v) "
        "FROM events e GROUP BY e.k, `my key`, window(e.ts, '10s')"
    )
    query = sql(text, "q")
    assert query.by == ("k", "my key")
    assert query.aggregates == (f.sum("v"),)


@pytest.mark.parametrize(
    ("call", "time"),
    [
        ("window(ts, '10s')", "ts"),
        ("window(other, '10s', '5s', '1s')", "other"),
        ("session_window(`my time`, '1s')", "my time"),
        ("count_window(5)", None),
        ("event_window(at => v > 1)", None),
        ("event_window(start => a, end => b)", None),
    ],
)
def test_a_query_remembers_the_time_column_that_its_window_names(
    call: str, time: str | None
) -> None:
    assert sql(f"SELECT sum(v) FROM events GROUP BY {call}", "q").time == time


@pytest.mark.parametrize(
    ("table", "kept"),
    [
        ("events", None),
        ("EVENTS AS e", None),
        ("soccer", "soccer"),
        ("`my job` j", "my job"),
        ("s.events", "s.events"),
    ],
)
def test_a_query_remembers_its_table(table: str, kept: str | None) -> None:
    assert sql(f"SELECT sum(v) FROM {table} GROUP BY count_window(5)", "q").table == kept


def test_what_sql_names_is_no_part_of_the_query_but_goes_where_the_query_goes() -> None:
    """Until a job is known: to a file of the job's folder, or over the network."""
    made = sql("SELECT sum(v) FROM soccer GROUP BY window(at, '10s')", "q")
    plain = Query("q", f.sum("v"), window=w.tumbling("10s"))
    assert made == plain and hash(made) == hash(plain) and made.identity == plain.identity
    assert set(made.to_dict()) - set(plain.to_dict()) == {"time", "table"}
    sent = Query.from_dict(json.loads(json.dumps(made.to_dict())))
    assert (sent.time, sent.table) == ("at", "soccer")
    met = bound(sent, QueryRules("at", tables=("soccer",)))
    assert met == plain and met.to_dict() == plain.to_dict()


@pytest.mark.parametrize(
    ("text", "rules", "message"),
    [
        (
            "FROM events GROUP BY window(other, '10s')",
            QueryRules("ts"),
            (
                "query 'q': its window names the column 'other', but the time column "
                "of the events is 't"
            ),
        ),
        (
            "FROM events GROUP BY session_window(TS, '10s')",
            QueryRules("ts"),
            (
                "query 'q': its window names the column 'TS', but the time column of "
                "the events is 'ts'"
            ),
        ),
        (
            "FROM event GROUP BY window(ts, '10s')",
            QueryRules("ts"),
            (
                "query 'q': FROM takes the events of the job (given: FROM event); did "
                "you mean 'events'?"
            ),
        ),
        (
            "FROM socer GROUP BY count_window(5)",
            QueryRules("ts", tables=("soccer", "plays")),
            (
                "query 'q': FROM takes the events of the job (given: FROM socer); did "
                "you mean 'soccer'?"
            ),
        ),
        (
            "FROM x GROUP BY count_window(5)",
            QueryRules("ts", tables=("soccer", "plays")),
            "query 'q': FROM takes the events of the job (given: FROM x); known: events, plays, so",
        ),
        (
            "FROM s.events GROUP BY window(ts, '10s')",
            QueryRules("ts"),
            "query 'q': FROM takes the events of the job (given: FROM s.events); did you mean 'ev",
        ),
    ],
)
def test_another_time_column_or_table_is_refused(
    text: str, rules: QueryRules, message: str
) -> None:
    with pytest.raises(QueryError) as caught:
        bound(sql(f"SELECT sum(v) {text}", "q"), rules)
    assert str(caught.value).startswith(message)


def test_every_reason_against_a_query_is_told() -> None:
    query = sql("SELECT sum(v) FROM x GROUP BY window(y, '1s')", "q")
    assert len(list(refusals(query, QueryRules("ts")))) == 2


def test_tables_are_told_apart_without_regard_to_case() -> None:
    query = sql("SELECT sum(v) FROM Soccer GROUP BY window(ts, '1s')", "q")
    assert bound(query, QueryRules("ts", tables=("soccer",))).table is None


def test_aggregate() -> None:
    assert aggregate("avg(a * b) AS mean") == f.avg("a * b").alias("mean")
    for text in ("avg(v) FROM x", "avg(v), sum(v)", "avg(v", "", "avg(v); sum(v)"):
        with pytest.raises(SqlError, match="not one aggregate"):
            aggregate(text)


G = "GROUP BY window(ts, '10s')"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the SQL is empty (given: '')"),
        ("DELETE FROM e", "only SELECT is supported in SQL (given: DELETE)"),
        ("SELECT sum(v FROM e", "the SQL does not parse (given: SELECT sum(v FROM e, line 1, col"),
        (f"SELECT sum(v) {TAIL}; SELECT 1", "more than one statement in SQL (given: 2 statements)"),
        (f"(SELECT sum(v) {TAIL})", "only SELECT is supported in SQL"),
        (f"SELECT sum(v) {TAIL} UNION SELECT 1", "UNION is not supported in SQL; make each SELECT"),
        (f"WITH x AS (SELECT 1) SELECT sum(v) FROM x {G}", "the SQL has no FROM"),
        (
            f"SELECT sum(v) FROM a JOIN b ON a.x = b.x {G}",
            "JOIN takes a small table that every node holds (given: b); name its file, as in JOIN ",
        ),
        (f"SELECT sum(v) FROM a, b {G}", "only inner and left joins are supported in SQL"),
        (f"SELECT sum(v) FROM (SELECT 1) {G}", "the SQL has no FROM"),
        (f"SELECT sum(v) FROM a WHERE x IN (SELECT 1) {G}", "a subquery is not supported in SQL"),
        (f"SELECT (SELECT 1) {TAIL}", "a subquery is not supported in SQL (given: (SELECT 1))"),
        (f"SELECT DISTINCT sum(v) {TAIL}", "DISTINCT is not supported in SQL"),
        (f"SELECT sum(v) {TAIL} QUALIFY x", "QUALIFY is not supported in SQL"),
        (f"SELECT sum(v) FROM e TABLESAMPLE (3 ROWS) {G}", "TABLESAMPLE is not supported in SQL"),
        (f"SELECT sum(v) FROM range(3) {G}", "FROM takes one table (given: range(3))"),
        ("SELECT sum(v)", "the SQL has no FROM"),
        ("SELECT sum(v) FROM e", "the SQL has no window; add one to GROUP BY: window(ts, size"),
        ("SELECT sum(v) FROM e GROUP BY k", "the SQL has no window"),
        (
            "SELECT sum(v) FROM e GROUP BY window(ts, '1s'), window(ts, '2s')",
            "the SQL has several windows (given: window(ts, '1s'), window(ts, '2s')); make each",
        ),
        (
            "SELECT sum(v) FROM e GROUP BY tumbling(ts, '1s', '0s', 'UTC', 'local', 1)",
            "tumbling has the wrong arguments (given: tumbling(ts, '1s', '0s', 'UTC', 'local', 1))",
        ),
        ("SELECT sum(v) FROM e GROUP BY tumbling(ts)", "tumbling has the wrong arguments"),
        (
            "SELECT sum(v) FROM e GROUP BY tumbling(length => '1s', '2s', ofset => '1s')",
            "tumbling has the wrong arguments",
        ),
        ("SELECT sum(v) FROM e GROUP BY ALL", "the SQL has no window; add one to GROUP BY"),
        (
            "SELECT sum(v) FROM e GROUP BY sesion_window(ts, '1s')",
            "no such window in SQL (given: sesion_window); did you mean 'session_window'?",
        ),
        (f"SELECT k, sum(v) {TAIL}", "SQL selects a column that is not a key (given: k); add it"),
        (f"SELECT * {TAIL}", "SELECT * is not supported in SQL (given: *)"),
        (f"SELECT sum(v) OVER (PARTITION BY k) {TAIL}", "OVER is not supported in SQL"),
        (
            "SELECT sum(v) FROM e GROUP BY shifts(ts, '1s')",
            (
                "no such function or window in GROUP BY (given: shifts(ts, '1s')); functions are "
                "abs, acos, add_months, array, "
            ),
        ),
        (
            "SELECT sum(v) FROM e GROUP BY Hop(ts, '1s')",
            (
                "hop stands in FROM, as TABLE(hop(TABLE events, DESCRIPTOR(ts), ...)) (given: "
                "Hop(ts, '1s')); in GROUP BY write window(ts, size, slide)"
            ),
        ),
        (
            "SELECT sum(v) FROM e GROUP BY upper(max(k)), window(ts, '1s')",
            "GROUP BY has an aggregate in it (given: upper(max(k))); group by columns and expres",
        ),
        (
            "SELECT sum(v) FROM e GROUP BY 3, window(ts, '1s')",
            "GROUP BY names an item of SELECT that is not there (given: 3); there are 1, from 1",
        ),
        (
            f"SELECT sum(v) {TAIL} ORDER BY 0",
            "ORDER BY names an item of SELECT that is not there (given: 0); there are 1, from 1",
        ),
        (f"SELECT sum(v) {TAIL} ORDER BY 1 LIMIT 2 + 1", "LIMIT takes a whole number"),
        (f"SELECT sum(v) {TAIL} OFFSET 3", "OFFSET is not supported in SQL (given: OFFSET 3)"),
        (
            f"SELECT sum(v) FROM e WHERE sum(v) > 1 {G}",
            "WHERE has an aggregate in it (given: WHERE sum(v) > 1); WHERE chooses events; a cond",
        ),
        (
            f"SELECT sum(v) {TAIL} HAVING v > 1",
            "HAVING names a column that is not a key (given: v); add it to GROUP BY, or aggregate",
        ),
        (
            f"SELECT sum(v) {TAIL} ORDER BY v",
            "ORDER BY names a column that is not a key (given: v); add it to GROUP BY, or aggreg",
        ),
        (
            "SELECT sum(v) + kk FROM e GROUP BY k, window(ts, '1s')",
            (
                "SQL selects a column that is not a key (given: kk); add it to GROUP BY, or "
                "aggregate it as in max(kk); did you mean 'k'?"
            ),
        ),
        (
            f"SELECT sum(v) FILTER (WHERE max(v) > 1) {TAIL}",
            "FILTER has an aggregate in its condition (given: sum(v) FILTER(WHERE max(v) > 1))",
        ),
        (f"SELECT count_if(v, 2) {TAIL}", "count_if takes one condition (given: count_if(v, 2))"),
        (
            f"SELECT mode(DISTINCT v) {TAIL}",
            "DISTINCT does not go with this function (given: mode(DISTINCT v)); it goes with count",
        ),
        (f"SELECT percentile_cont(0.5) {TAIL}", "percentile_cont needs WITHIN GROUP"),
        (
            f"SELECT avg() WITHIN GROUP (ORDER BY v) {TAIL}",
            "WITHIN GROUP goes with percentile_cont, percentile_disc and mode, of one column",
        ),
        (f"SELECT grouping(k) {TAIL}", "grouping needs sets of keys (given: grouping(k))"),
        (
            "SELECT grouping(x), sum(v) FROM e GROUP BY ROLLUP(k), window(ts, '1s')",
            "grouping has the wrong arguments (given: grouping(x)); write grouping_id(), of all",
        ),
        (f"SELECT first(v) RESPECT NULLS {TAIL}", "all aggregates ignore nulls"),
        (f"SELECT quantile(v, w) {TAIL}", "parameters of functions and windows must be literals"),
        (
            "SELECT sum(v) FROM e GROUP BY window(ts)",
            (
                "window has the wrong arguments (given: window(ts)); write window(ts, "
                "size[, slide[, st"
            ),
        ),
        ("SELECT sum(v) FROM e GROUP BY window('10s', '5s')", "window needs the time column first"),
        (
            "SELECT sum(v) FROM e GROUP BY event_window(begin => a, end => b)",
            "event_window has the wrong arguments (given: event_window(begin => a, end => b))",
        ),
    ],
)
def test_what_sql_does_not_do(text: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        sql(text, "q")
    assert str(caught.value).startswith(message)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_by(v, w, x)", "max_by takes 2 columns and nothing else (given: max_by(v, w, x))"),
        ("avg(v, w)", "avg takes a column and nothing else (given: avg(v, w))"),
    ],
)
def test_columns_too_many(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        sql(f"SELECT {text} {TAIL}", "q")
    assert str(caught.value).startswith(message)


def query(*aggregates: Any, **options: Any) -> Query:
    return Query("q", *aggregates, **({"window": w.tumbling("10s")} | options))


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("SELECT sum(v) FROM e GROUP BY window(ts, '0s')", lambda: w.tumbling("0s")),
        ("SELECT sum(v) FROM e GROUP BY window(ts, 10)", lambda: w.tumbling(10)),  # type: ignore[arg-type]
        ("SELECT sum(v) FROM e GROUP BY window(ts, '9s', '0s')", lambda: w.sliding("9s", "0s")),
        ("SELECT sum(v) FROM e GROUP BY window(ts, 'soon')", lambda: w.tumbling("soon")),
        ("SELECT sum(v) FROM e GROUP BY session_window(ts, '-1s')", lambda: w.session("-1s")),
        ("SELECT sum(v) FROM e GROUP BY count_window(0)", lambda: w.count_tumbling(0)),
        ("SELECT sum(v) FROM e GROUP BY event_window(at => avg(v))", lambda: w.cut("avg(v)")),
        (f"SELECT quantile(v, 2) {TAIL}", lambda: f.quantile("v", 2)),
        (f"SELECT sums(v) {TAIL}", lambda: f.make("sums", "v")),
        (f"SELECT avg() {TAIL}", lambda: f.avg()),
        (f"SELECT avg(v, 1) {TAIL}", lambda: f.make("avg", "v", (1,))),
        (f"SELECT avg(sum(v)) {TAIL}", lambda: f.avg("sum(v)")),
        (f"SELECT avg(v) FROM e WHERE foo(v) {G}", lambda: query(f.avg("v"), where="foo(v)")),
        (f"SELECT avg(v), avg(v) {TAIL}", lambda: query(f.avg("v"), f.avg("v"))),
        (f"SELECT avg(v) AS window_end {TAIL}", lambda: query(f.avg("v").alias("window_end"))),
    ],
)
def test_the_same_mistake_gives_the_same_error(text: str, python: Callable[[], Any]) -> None:
    with pytest.raises(QueryError) as from_sql:
        sql(text, "q")
    with pytest.raises(QueryError) as from_python:
        python()
    assert type(from_sql.value) is type(from_python.value)
    assert str(from_sql.value) == str(from_python.value)
