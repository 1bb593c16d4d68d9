"""A SELECT of events in FROM or WITH is the same query as one that says all of it at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

import catchment as ct
from catchment.errors import SqlError

W = "window(ts, '1 minute')"
INNER = "SELECT upper(site) AS k, v * 2 AS w, ts FROM events WHERE v > 0"


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        (
            f"SELECT k, sum(w) FROM ({INNER}) GROUP BY k, {W}",
            (
                f"SELECT upper(site) AS k, sum(v * 2) AS `sum(w)` FROM events WHERE v > 0 "
                f"GROUP BY k, {W}"
            ),
        ),
        (
            f"SELECT sum(w) AS s FROM ({INNER}) AS x WHERE x.w < 9 OR k = 'A' GROUP BY x.k, {W}",
            (
                f"SELECT sum(v * 2) AS s, upper(site) AS k FROM events "
                f"WHERE v > 0 AND (v * 2 < 9 OR upper(site) = 'A') GROUP BY k, {W}"
            ),
        ),
        (
            (
                f"WITH a AS (SELECT * FROM events WHERE v > 0 OR v < -1), "
                f"b AS (SELECT *, a + b AS c FROM a WHERE site = 'z') "
                f"SELECT site, avg(c) AS m FROM b WHERE c > 3 GROUP BY site, {W} HAVING avg(c) > 1"
            ),
            (
                f"SELECT site, avg(a + b) AS m FROM events "
                f"WHERE (v > 0 OR v < -1) AND site = 'z' AND a + b > 3 "
                f"GROUP BY site, {W} HAVING avg(a + b) > 1"
            ),
        ),
        (
            (
                "SELECT sum(w) AS s FROM (SELECT v AS w, ts AS t FROM events) AS e "
                "GROUP BY window(t, '1 minute')"
            ),
            f"SELECT sum(v) AS s FROM events GROUP BY {W}",
        ),
        (
            (
                f"SELECT e.q.z, sum(e.w) AS s FROM (SELECT req AS q, v AS w, ts FROM events) AS e "
                f"GROUP BY e.q.z, {W}"
            ),
            f"SELECT req.z, sum(v) AS s FROM events GROUP BY req.z, {W}",
        ),
        (
            (
                f"SELECT sum(v) AS v FROM (SELECT v, ts FROM events) GROUP BY {W} HAVING v > 3 "
                f"ORDER BY v"
            ),
            f"SELECT sum(v) AS v FROM events GROUP BY {W} HAVING v > 3 ORDER BY v",
        ),
        (
            f"SELECT sum(v - w) AS s FROM (SELECT v, a - b AS w, ts FROM events) GROUP BY {W}",
            f"SELECT sum(v - (a - b)) AS s FROM events GROUP BY {W}",
        ),
        (
            (
                f"SELECT d.room, sum(w) AS s FROM (SELECT -v AS w, ts, concat('a', id) AS i "
                f"FROM events) JOIN parquet.`d.parquet` AS d USING (i) GROUP BY d.room, {W}"
            ),
            (
                f"SELECT d.room, sum(-v) AS s FROM events JOIN parquet.`d.parquet` AS d "
                f"ON d.i = concat('a', id) GROUP BY d.room, {W}"
            ),
        ),
        (
            (
                f"SELECT room, d.floor, sum(v) AS s FROM (SELECT v, ts, d.room, id FROM events "
                f"JOIN parquet.`d.parquet` AS d USING (id)) JOIN parquet.`f.parquet` AS d "
                f"USING (room) GROUP BY room, d.floor, {W}"
            ),
            (
                f"SELECT d.room, f.floor, sum(v) AS s FROM events JOIN parquet.`d.parquet` AS d "
                f"USING (id) JOIN parquet.`f.parquet` AS f ON f.room = d.room "
                f"GROUP BY d.room, f.floor, {W}"
            ),
        ),
        (
            (
                f"SELECT max(m) AS s FROM (SELECT n * 2 AS m, window_time FROM "
                "(SELECT count(*) AS n "
                f"FROM events GROUP BY {W})) WHERE m > 2 GROUP BY window(window_time, '1 hour')"
            ),
            (
                f"SELECT max(n * 2) AS s FROM (SELECT count(*) AS n FROM events GROUP BY {W}) "
                f"WHERE n * 2 > 2 GROUP BY window(window_time, '1 hour')"
            ),
        ),
    ],
)
def test_it_is_the_query_that_says_all_at_once(nested: str, flat: str) -> None:
    assert ct.sql(nested, "q") == ct.sql(flat, "q")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"SELECT sum(z) FROM ({INNER}) GROUP BY {W}", "no such column in a SELECT in FROM"),
        (
            f"SELECT n FROM (SELECT count(*) AS n FROM events GROUP BY {W}) WHERE n > 2",
            "a condition on results goes into HAVING",
        ),
        (
            f"SELECT sum(v) FROM (SELECT * FROM events LIMIT 3) GROUP BY {W}",
            "LIMIT in a SELECT of events is not supported",
        ),
        (
            f"SELECT sum(v) FROM (SELECT DISTINCT v, ts FROM events) GROUP BY {W}",
            "DISTINCT is not supported",
        ),
        (f"SELECT sum(v) FROM (SELECT v + 1, ts FROM events) GROUP BY {W}", "has no name"),
        (
            f"SELECT sum(v) FROM (SELECT v, w AS v, ts FROM events) GROUP BY {W}",
            "two columns of one name",
        ),
        (
            f"SELECT sum(w.x) FROM (SELECT v + 1 AS w, ts FROM events) GROUP BY {W}",
            "a field is taken of what a SELECT in FROM computes",
        ),
        (
            f"SELECT sum(v) FROM (SELECT max(v) AS v FROM events) GROUP BY {W}",
            "the SQL has no window",
        ),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        ct.sql(text, "q")


def test_the_rows_are_duckdbs() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    events = pa.table(
        {
            "ts": [begin + timedelta(seconds=7 * n) for n in range(400)],
            "site": [None if n % 11 == 0 else f"s{n % 3}" for n in range(400)],
            "v": [float(n % 17) - 4 for n in range(400)],
        }
    )
    inner = "SELECT *, v * 2 - 1 AS w, upper(site) AS place FROM events WHERE v >= 0"
    text = f"WITH x AS ({inner}) SELECT place, sum(w) AS s, count(*) AS n FROM x WHERE w < 20 "
    made = ct.run(events, [ct.sql(f"{text} GROUP BY place, {W}", "q")], spark=False)["q"]
    found = made.select(["window_start", "place", "s", "n"])
    plain = events.set_column(0, "ts", events["ts"].cast(pa.timestamp("us")))
    wanted = duckdb.sql(
        text.replace("events", "plain").replace(
            "SELECT place", "SELECT date_trunc('minute', ts) AS begin, place"
        )
        + " GROUP BY 1, place"
    ).fetchall()
    assert len(plain) == 400 and len(wanted) > 50
    rows = {(str(b)[:19], p, s, n) for b, p, s, n in zip(*found.to_pydict().values(), strict=True)}
    assert rows == {(str(b), p, s, n) for b, p, s, n in wanted}
