"""Two dozen questions that people ask of a web log, a shop, sensors and edits of a wiki, in SQL.

Each is asked of us and of DuckDB, over made-up events with the columns of the real ones. With
CATCHMENT_DATA, a folder that has the real ones as Parquet files, it is asked of these too.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.testing.compare import assert_same

duckdb = pytest.importorskip("duckdb")

from sql_questions import answers, connect  # noqa: E402

FOLDER = os.environ.get("CATCHMENT_DATA")
HOUR, DAY = 3600, 86400


class Asked(NamedTuple):
    """A question: the events, the length of the window in seconds, and both texts.

    In DuckDB's text, `t` are the events with the start of their window as `w`, and `@` stands for
    the bounds of the window.
    """

    events: str
    seconds: int
    ours: str
    theirs: str
    keys: tuple[str, ...] = ()


WEB, SHOP, SENSORS, WIKI = "nasa_http", "online_retail", "ooo_iot", "wikipedia_edits"

QUESTIONS = {
    "how many requests an hour, and what share of them failed?": Asked(
        WEB,
        HOUR,
        "SELECT count(*) AS n, round(count_if(response >= 400) / count(*), 4) AS failed "
        "FROM events GROUP BY window(ts, '1 hour')",
        "SELECT @, count(*) AS n, round(count_if(response >= 400) / count(*), 4) AS failed "
        "FROM t GROUP BY w",
    ),
    "how many kilobytes a second, in minutes with more than ten requests?": Asked(
        WEB,
        60,
        "SELECT sum(value) / 1024 / 60 AS rate FROM events GROUP BY window(ts, '1 minute') "
        "HAVING count(*) > 10",
        "SELECT @, sum(value) / 1024 / 60 AS rate FROM t GROUP BY w HAVING count(*) > 10",
    ),
    "which five pages are read most, each hour?": Asked(
        WEB,
        HOUR,
        "SELECT key AS page, count(*) AS n FROM events WHERE method = 'GET' "
        "GROUP BY page, window(ts, '1 hour') ORDER BY n DESC LIMIT 5",
        "SELECT key AS page, @, count(*) AS n FROM t WHERE method = 'GET' GROUP BY page, w "
        "QUALIFY row_number() OVER (PARTITION BY w ORDER BY n DESC, page) <= 5",
        ("page",),
    ),
    "which hosts ask more than eight times in ten minutes?": Asked(
        WEB,
        600,
        "SELECT host, count(*) AS n, count(DISTINCT key) AS pages FROM events "
        "GROUP BY host, window(ts, '10 minutes') HAVING n > 8",
        "SELECT host, @, count(*) AS n, count(DISTINCT key) AS pages FROM t "
        "GROUP BY host, w HAVING n > 8",
        ("host",),
    ),
    "how do the kinds of responses divide?": Asked(
        WEB,
        HOUR,
        "SELECT CASE WHEN response < 300 THEN 'done' WHEN response < 400 THEN 'elsewhere' "
        "ELSE 'failed' END AS outcome, count(*) AS n, max(value) AS largest "
        "FROM events GROUP BY outcome, window(ts, '1 hour')",
        "SELECT CASE WHEN response < 300 THEN 'done' WHEN response < 400 THEN 'elsewhere' "
        "ELSE 'failed' END AS outcome, @, count(*) AS n, max(value) AS largest "
        "FROM t GROUP BY outcome, w",
        ("outcome",),
    ),
    "how many visitors, and how many requests does each make?": Asked(
        WEB,
        HOUR,
        "SELECT window.start AS hour, count(DISTINCT host) AS hosts, "
        "count(*) / count(DISTINCT host) AS each FROM events GROUP BY window(ts, '1 hour')",
        "SELECT @, w AS hour, count(DISTINCT host) AS hosts, "
        "count(*) / count(DISTINCT host) AS each FROM t GROUP BY w",
    ),
    "how large are responses, at the median and at the 95th percentile?": Asked(
        WEB,
        HOUR,
        "SELECT percentile(value, array(0.5, 0.95)) AS sizes, "
        "percentile_disc(0.95) WITHIN GROUP (ORDER BY value) AS real "
        "FROM events WHERE value > 0 GROUP BY window(ts, '1 hour')",
        "SELECT @, quantile_cont(value, [0.5, 0.95]) AS sizes, quantile_disc(value, 0.95) AS real "
        "FROM t WHERE value > 0 GROUP BY w",
    ),
    "how long are visits, and how many pages have they?": Asked(
        WEB,
        0,
        "SELECT host, count(*) AS pages, "
        "count(*) FILTER (WHERE response >= 400) AS failed FROM events "
        "GROUP BY host, session_window(ts, '30 minutes') HAVING count(*) > 3",
        "SELECT host, min(ts) AS window_start, max(ts) + INTERVAL 30 MINUTE AS window_end, "
        "count(*) AS pages, count(*) FILTER (WHERE response >= 400) AS failed FROM ("
        "SELECT *, sum(new) OVER (PARTITION BY host ORDER BY ts, seq) AS visit FROM ("
        "SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY host ORDER BY ts, seq) "
        "<= INTERVAL 30 MINUTE THEN 0 ELSE 1 END AS new FROM events)) "
        "GROUP BY host, visit HAVING count(*) > 3",
        ("host",),
    ),
    "what does each country buy for, day by day?": Asked(
        SHOP,
        DAY,
        "SELECT country, sum(quantity * unit_price) AS revenue, count(DISTINCT invoice_no) AS n "
        "FROM events GROUP BY country, window(ts, '1 day')",
        "SELECT country, @, sum(quantity * unit_price) AS revenue, "
        "count(DISTINCT invoice_no) AS n FROM t GROUP BY country, w",
        ("country",),
    ),
    "what is in a basket, on average?": Asked(
        SHOP,
        DAY,
        "SELECT sum(quantity * unit_price) / count(DISTINCT invoice_no) AS basket, "
        "sum(quantity) / count(DISTINCT invoice_no) AS pieces "
        "FROM events WHERE quantity > 0 GROUP BY window(ts, '1 day')",
        "SELECT @, sum(quantity * unit_price) / count(DISTINCT invoice_no) AS basket, "
        "sum(quantity) / count(DISTINCT invoice_no) AS pieces "
        "FROM t WHERE quantity > 0 GROUP BY w",
    ),
    "what share of the pieces comes back?": Asked(
        SHOP,
        7 * DAY,
        "SELECT coalesce(-sum(quantity) FILTER (WHERE quantity < 0), 0) / "
        "sum(quantity) FILTER (WHERE quantity > 0) AS back FROM events "
        "GROUP BY window(ts, '7 days')",
        "SELECT @, coalesce(-sum(quantity) FILTER (WHERE quantity < 0), 0) / "
        "sum(quantity) FILTER (WHERE quantity > 0) AS back FROM t GROUP BY w",
    ),
    "which three items sell best, each day?": Asked(
        SHOP,
        DAY,
        "SELECT key AS item, sum(quantity) AS pieces FROM events GROUP BY key, window(ts, '1 day') "
        "ORDER BY sum(quantity) DESC LIMIT 3",
        "SELECT key AS item, @, sum(quantity) AS pieces FROM t GROUP BY key, w "
        "QUALIFY row_number() OVER (PARTITION BY w ORDER BY pieces DESC, item) <= 3",
        ("item",),
    ),
    "how many pieces in all, by country, and by country and kind of invoice?": Asked(
        SHOP,
        7 * DAY,
        "SELECT country, left(invoice_no, 1) = 'C' AS cancelled, sum(quantity) AS pieces, "
        "grouping(cancelled) AS over FROM events "
        "GROUP BY ROLLUP(country, cancelled), window(ts, '7 days')",
        "SELECT country, c AS cancelled, @, grouping(country, c) AS grouping_id, "
        "grouping(c) AS over, sum(quantity) AS pieces FROM "
        "(SELECT *, left(invoice_no, 1) = 'C' AS c FROM t) GROUP BY ROLLUP (country, c), w",
        ("country", "cancelled", "grouping_id"),
    ),
    "who bought for more than a thousand in a week?": Asked(
        SHOP,
        7 * DAY,
        "SELECT customer_id, round(sum(quantity * unit_price), 0) > 5000 AS very, "
        "count(DISTINCT key) AS items FROM events WHERE customer_id IS NOT NULL "
        "GROUP BY customer_id, window(ts, '7 days') HAVING sum(quantity * unit_price) > 1000",
        "SELECT customer_id, @, round(sum(quantity * unit_price), 0) > 5000 AS very, "
        "count(DISTINCT key) AS items FROM t WHERE customer_id IS NOT NULL "
        "GROUP BY customer_id, w HAVING sum(quantity * unit_price) > 1000",
        ("customer_id",),
    ),
    "at which hours of the day do people buy?": Asked(
        SHOP,
        7 * DAY,
        "SELECT hour(ts) AS hour_of_day, count(DISTINCT invoice_no) AS n FROM events "
        "GROUP BY 1, window(ts, '7 days')",
        "SELECT hour(ts) AS hour_of_day, @, count(DISTINCT invoice_no) AS n FROM t "
        "GROUP BY hour_of_day, w",
        ("hour_of_day",),
    ),
    "how many customers try how many different items?": Asked(
        SHOP,
        DAY,
        "SELECT count(DISTINCT customer_id, key) AS pairs, count(DISTINCT customer_id) AS people "
        "FROM events GROUP BY window(ts, '1 day')",
        "SELECT @, count(DISTINCT CASE WHEN customer_id IS NOT NULL THEN (customer_id, key) END) "
        "AS pairs, count(DISTINCT customer_id) AS people FROM t GROUP BY w",
    ),
    "how does each device do, on average and around it?": Asked(
        SENSORS,
        60,
        "SELECT key AS device, round(avg(value), 2) AS mean, stddev(value) AS around, "
        "count(value) AS n FROM events GROUP BY key, window(ts, '1 minute') "
        "HAVING count(value) >= 5",
        "SELECT key AS device, @, round(avg(value), 2) AS mean, stddev(value) AS around, "
        "count(value) AS n FROM t GROUP BY key, w HAVING count(value) >= 5",
        ("device",),
    ),
    "which three devices swing most, each minute?": Asked(
        SENSORS,
        60,
        "SELECT key, max(value) - min(value) AS swing FROM events GROUP BY key, "
        "window(ts, '1 minute') ORDER BY swing DESC, key LIMIT 3",
        "SELECT key, @, max(value) - min(value) AS swing FROM t GROUP BY key, w "
        "QUALIFY row_number() OVER (PARTITION BY w ORDER BY swing DESC NULLS LAST, key) <= 3",
        ("key",),
    ),
    "what does a dashboard show of the last minute, minute by minute?": Asked(
        SENSORS,
        60,
        "SELECT network, window_start, window_end, sum(content_length) / 60 AS rate, "
        "median(value) AS middle FROM "
        "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY network, window_start, window_end",
        "SELECT network, @, sum(content_length) / 60 AS rate, median(value) AS middle "
        "FROM t GROUP BY network, w",
        ("network",),
    ),
    "how much is sent, by every combination of network and device?": Asked(
        SENSORS,
        300,
        "SELECT network, key AS device, sum(content_length) AS bytes, avg(DISTINCT value) AS mean "
        "FROM events GROUP BY CUBE(network, device), window(ts, '5 minutes')",
        "SELECT network, key AS device, @, grouping(network, key) AS grouping_id, "
        "sum(content_length) AS bytes, avg(DISTINCT value) AS mean "
        "FROM t GROUP BY CUBE (network, key), w",
        ("network", "device", "grouping_id"),
    ),
    "how many edits do robots make, and how many people?": Asked(
        WIKI,
        60,
        "SELECT count_if(isRobot) AS robots, count(*) FILTER (WHERE NOT isRobot) AS people, "
        "count_if(isRobot) / count(*) AS share FROM events GROUP BY window(ts, '1 minute')",
        "SELECT @, count_if(isRobot) AS robots, count(*) FILTER (WHERE NOT isRobot) AS people, "
        "count_if(isRobot) / count(*) AS share FROM t GROUP BY w",
    ),
    "who edits most, each hour, and what comes of it?": Asked(
        WIKI,
        HOUR,
        "SELECT user, count(*) AS edits, sum(delta) AS net, "
        "CASE WHEN sum(delta) < 0 THEN 'less' ELSE 'more' END AS text FROM events "
        "WHERE NOT isRobot GROUP BY user, window(ts, '1 hour') ORDER BY edits DESC LIMIT 3",
        "SELECT user, @, count(*) AS edits, sum(delta) AS net, "
        "CASE WHEN sum(delta) < 0 THEN 'less' ELSE 'more' END AS text FROM t "
        "WHERE NOT isRobot GROUP BY t.user, w "
        "QUALIFY row_number() OVER (PARTITION BY w ORDER BY count(*) DESC, t.user) <= 3",
        ("user",),
    ),
    "how do edits divide by namespace, by who is known, and in all?": Asked(
        WIKI,
        HOUR,
        "SELECT namespace, isAnonymous, count(*) AS n, sum(delta) / count(*) AS mean, "
        "sum(DISTINCT delta) AS different FROM events "
        "GROUP BY GROUPING SETS ((namespace), (isAnonymous), ()), window(ts, '1 hour') "
        "HAVING count(*) > 2",
        "SELECT namespace, isAnonymous, @, grouping(namespace, isAnonymous) AS grouping_id, "
        "count(*) AS n, sum(delta) / count(*) AS mean, sum(DISTINCT delta) AS different FROM t "
        "GROUP BY GROUPING SETS ((namespace), (isAnonymous), ()), w HAVING count(*) > 2",
        ("namespace", "isAnonymous", "grouping_id"),
    ),
    "which wikis grow, by language?": Asked(
        WIKI,
        HOUR,
        "SELECT upper(substring(key, 2, 2)) AS language, sum(delta) / 1000 AS kilobytes, "
        "min(delta) AS worst, max(delta) AS best, count(DISTINCT user) AS users "
        "FROM events WHERE namespace = 'Main' AND key LIKE '#%.wikipedia' "
        "GROUP BY language, window(ts, '1 hour') HAVING sum(delta) > 0 AND users > 1",
        "SELECT upper(substring(key, 2, 2)) AS language, @, sum(delta) / 1000 AS kilobytes, "
        "min(delta) AS worst, max(delta) AS best, count(DISTINCT t.user) AS users "
        "FROM t WHERE namespace = 'Main' AND key LIKE '#%.wikipedia' "
        "GROUP BY language, w HAVING sum(delta) > 0 AND users > 1",
        ("language",),
    ),
}


def made_up(name: str) -> pa.Table:
    """Events with the columns of the real ones that the questions name."""
    dice = Random(name)
    n, begin = 3000, datetime(2011, 5, 2, 21, tzinfo=UTC)
    seconds = {WEB: 3 * HOUR, SHOP: 20 * DAY, SENSORS: 900, WIKI: 4 * HOUR}[name]
    times = [begin + timedelta(milliseconds=dice.randrange(seconds * 1000)) for _ in range(n)]

    def some(*values: Any) -> list[Any]:
        return [dice.choice(values) for _ in range(n)]

    letters = "abcdefgh"
    columns: dict[str, Any] = {
        WEB: {
            "key": some(*(f"/{a}.html" for a in letters)),
            "value": pa.array(some(0.0, 120.0, 3000.0, 65.5), pa.float64()),
            "host": some(*(f"host{number}" for number in range(40))),
            "method": some("GET", "GET", "POST"),
            "response": pa.array(some(200, 200, 304, 404, 500), pa.int16()),
        },
        SHOP: {
            "key": some(*(f"2{number}" for number in range(30))),
            "invoice_no": [f"{dice.choice(['C', '5'])}{number // 4}" for number in range(n)],
            "quantity": pa.array(some(-2, 1, 3, 12, 40), pa.int32()),
            "unit_price": pa.array(some(0.85, 1.25, 9.95, 30.0), pa.float64()),
            "customer_id": pa.array(some(None, *range(12, 60)), pa.int64()),
            "country": some("United Kingdom", "United Kingdom", "France", "Norway"),
        },
        SENSORS: {
            "key": some(*(f"dev_{number}" for number in range(9))),
            "value": pa.array(some(None, 68.0, 160.0, 17.25), pa.float64()),
            "content_length": pa.array(some(265, 70, 1400), pa.int64()),
            "network": some("UMTS", "LTE", None),
        },
        WIKI: {
            "key": some("#en.wikipedia", "#vi.wikipedia", "#ca.wikipedia", "#wikidata"),
            "user": some(*(f"{a}{b}" for a in letters for b in letters)),
            "namespace": some("Main", "Main", "Talk"),
            "delta": pa.array(some(-30, 14, 18, 500), pa.int64()),
            "isRobot": some(True, False),
            "isAnonymous": some(True, False, False),
        },
    }[name]
    stamps = pa.array(times, pa.timestamp("us", "UTC"))
    return pa.table({"ts": stamps, "seq": pa.array(range(n), pa.int64())} | columns)


def real(name: str) -> pa.Table:
    if FOLDER is None:
        pytest.skip("CATCHMENT_DATA names no folder of real events")
    table = pq.read_table(Path(FOLDER) / f"{name}.parquet")
    return table.select(["ts", *(column for column in table.schema.names if column != "ts")])


@pytest.mark.parametrize("data", [made_up, real])
@pytest.mark.parametrize("words", list(QUESTIONS))
def test_the_same_answer_as_duckdb(words: str, data: Any) -> None:
    asked = QUESTIONS[words]
    table = data(asked.events)
    bounds = f"w AS window_start, w + to_seconds({asked.seconds}) AS window_end"
    bucket = f"time_bucket(to_seconds({asked.seconds}), ts, TIMESTAMP '1970-01-01') AS w"
    text = asked.theirs.replace("@", bounds)
    if asked.seconds:
        text = f"WITH t AS (SELECT *, {bucket} FROM events) {text}"
    with connect() as connection:
        wanted = answers(connection, table, text)
    found = ct.run(table, ct.sql(asked.ours, "q"), spark=False)["q"]
    assert wanted, "a question that nothing answers tells nothing"
    assert_same(wanted, found, words, keys=asked.keys)


def test_there_are_two_dozen() -> None:
    assert len(QUESTIONS) == 24
    assert {asked.events for asked in QUESTIONS.values()} == {WEB, SHOP, SENSORS, WIKI}
