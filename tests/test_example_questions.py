"""The questions of `examples/web_log.yaml` and `examples/retail.yaml`, asked of DuckDB too.

DuckDB reads the files by itself, times included. In its texts `w` is the start of the window
that an event is in, and `@` stands for the bounds of that window.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import catchment as ct
from catchment.testing.compare import assert_same

duckdb = pytest.importorskip("duckdb")

from sql_questions import connect, plain_value  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
TABLES = {
    "web_log": "SELECT * REPLACE (strptime(stamp, '%d/%b/%Y:%H:%M:%S %z')::TIMESTAMPTZ AT TIME "
    "ZONE "
    "'UTC' AS stamp) FROM read_csv('{path}', types = {{'stamp': 'VARCHAR'}})",
    "retail": "SELECT * REPLACE (strptime(invoiced, '%-m/%-d/%Y %-H:%M') AS invoiced) "
    "FROM read_csv('{path}', types = {{'invoiced': 'VARCHAR', 'item': 'VARCHAR'}})",
}
TIMES = {"web_log": "stamp", "retail": "invoiced"}


class Theirs(NamedTuple):
    """What DuckDB is asked: the length of the window in seconds, and the text."""

    seconds: int
    text: str
    keys: tuple[str, ...] = ()


KIND = (
    "CASE WHEN page LIKE '%.gif' OR page LIKE '%.jpg' THEN 'picture' "
    "WHEN page LIKE '%.html' OR page LIKE '%/' THEN 'page' ELSE 'other' END"
)
VISITS = (
    "(SELECT host, count(*) AS n, "
    "max(stamp) + INTERVAL 10 minutes - INTERVAL 1 microsecond AS moment "
    "FROM (SELECT *, sum(fresh) OVER (by_host ROWS UNBOUNDED PRECEDING) AS visit "
    "FROM (SELECT host, stamp, "
    "coalesce((stamp - lag(stamp) OVER by_host > INTERVAL 10 minutes)::INT, 0) AS fresh "
    "FROM t WINDOW by_host AS (PARTITION BY host ORDER BY stamp)) "
    "WINDOW by_host AS (PARTITION BY host ORDER BY stamp)) GROUP BY host, visit)"
)
DAYS = (
    "(SELECT time_bucket(INTERVAL 1 day, invoiced, TIMESTAMP '1970-01-01') AS moment, "
    "sum(quantity * price) AS revenue FROM t GROUP BY 1)"
)
MINUTES = "(SELECT date_trunc('minute', stamp) AS moment, count(*) AS n FROM t GROUP BY 1)"
SHARE = "-sum(quantity) FILTER (WHERE quantity < 0) / sum(quantity) FILTER (WHERE quantity > 0)"
ASKED: dict[str, dict[str, Theirs]] = {
    "web_log": {
        "load": Theirs(
            1800,
            "SELECT @, count(*) AS requests, round(sum(bytes) / 1024 / 1024, 2) AS megabytes, "
            "count_if(response >= 400) / count(*) AS failed FROM t GROUP BY w",
        ),
        "top_pages": Theirs(
            3600,
            "SELECT page, @, count(*) AS n, count(DISTINCT host) AS readers FROM t WHERE method = "
            "'GET' AND response = 200 AND page LIKE '%.html' GROUP BY page, w "
            "QUALIFY row_number() OVER (PARTITION BY w ORDER BY n DESC, page) <= 5",
            ("page",),
        ),
        "endings": Theirs(
            3600,
            "SELECT coalesce(meaning, 'other') AS ending, @, count(*) AS n FROM t LEFT JOIN "
            "read_csv('examples/data/responses.csv') USING (response) GROUP BY ending, w",
            ("ending",),
        ),
        "visitors": Theirs(
            3600,
            "SELECT @, count(DISTINCT host) AS hosts, count(*) / count(DISTINCT host) AS "
            "requests_each, sum(bytes) / count(DISTINCT host) AS bytes_each FROM (FROM t UNION ALL "
            "SELECT * REPLACE (w - INTERVAL 30 minutes AS w) FROM t) GROUP BY w",
        ),
        "sizes": Theirs(
            3600,
            "SELECT @, quantile_cont(bytes, [0.5, 0.95]) AS shares, max(bytes) AS largest, "
            "arg_max(page, bytes) AS largest_page FROM t WHERE bytes > 0 GROUP BY w",
        ),
        "kinds": Theirs(
            7200,
            f"SELECT {KIND} AS kind, method, grouping(kind, method) AS grouping_id, @, count(*) "
            f"AS n, "
            "sum(bytes) AS bytes FROM t GROUP BY ROLLUP(kind, method), w",
            ("kind", "method", "grouping_id"),
        ),
        "visits": Theirs(
            3600,
            "SELECT @, count(*) AS visits, avg(n) AS requests, max(n) AS most FROM (SELECT *, "
            f"time_bucket(INTERVAL 1 hour, moment) AS w FROM {VISITS}) GROUP BY w",
        ),
        "peaks": Theirs(
            3600,
            "SELECT @, max(n) AS busiest, avg(n) AS usual, max(n) / avg(n) AS times FROM "
            "(SELECT *, "
            f"time_bucket(INTERVAL 1 hour, moment) AS w FROM {MINUTES}) GROUP BY w",
        ),
    },
    "retail": {
        "revenue": Theirs(
            86400,
            "SELECT country, grouping(country) AS grouping_id, @, round(sum(quantity * price), "
            "2) AS "
            "revenue, count(DISTINCT invoice) AS invoices FROM t GROUP BY ROLLUP(country), w",
            ("country", "grouping_id"),
        ),
        "best_items": Theirs(
            86400,
            "SELECT item, @, sum(quantity * price) AS revenue, sum(quantity) AS pieces FROM t "
            "WHERE "
            "quantity > 0 GROUP BY item, w "
            "QUALIFY row_number() OVER (PARTITION BY w ORDER BY revenue DESC, item) <= 3",
            ("item",),
        ),
        "baskets": Theirs(
            86400,
            "SELECT @, sum(quantity * price) / count(DISTINCT invoice) AS worth, count(*) / "
            "count(DISTINCT invoice) AS lines, median(quantity) AS pieces FROM t WHERE NOT invoice "
            "LIKE 'C%' GROUP BY w",
        ),
        "returns": Theirs(604800, f"SELECT @, coalesce({SHARE}, 0) AS share FROM t GROUP BY w"),
        "hours": Theirs(
            604800,
            "SELECT hour(invoiced) AS hour, @, count(DISTINCT invoice) AS invoices, sum(quantity * "
            "price) AS revenue FROM t GROUP BY hour, w HAVING count(DISTINCT invoice) > 1",
            ("hour",),
        ),
        "good_customers": Theirs(
            604800,
            "SELECT customer, @, sum(quantity * price) AS revenue, count(DISTINCT item) AS "
            "items FROM "
            "t WHERE customer IS NOT NULL GROUP BY customer, w HAVING sum(quantity * price) > 200",
            ("customer",),
        ),
        "regions": Theirs(
            604800,
            "SELECT region, @, count(DISTINCT customer) AS customers, sum(quantity * price) / "
            "count(DISTINCT customer) AS revenue_each, avg(price) AS price FROM t JOIN "
            "read_csv('examples/data/regions.csv') USING (country) GROUP BY region, w",
            ("region",),
        ),
        "best_day": Theirs(
            604800,
            "SELECT @, max(revenue) AS best, avg(revenue) AS usual, count(*) AS days FROM "
            "(SELECT *, "
            f"time_bucket(INTERVAL 7 days, moment, TIMESTAMP '1970-01-01') AS w FROM {DAYS}) "
            f"GROUP BY w",
        ),
    },
}


REAL = ROOT.parent / "shared" / "data"
"""Real events, where they are at hand: the answers must be right for them, too."""
FROM_REAL = {
    "web_log": "COPY (SELECT strftime(ts AT TIME ZONE 'UTC', '%d/%b/%Y:%H:%M:%S +0000') AS stamp, "
    "host, method, key AS page, response, value::BIGINT AS bytes "
    "FROM '{folder}/nasa_http.parquet' WHERE day = '1995-07-01') TO '{path}' (HEADER)",
    "retail": "COPY (SELECT strftime(ts AT TIME ZONE 'UTC', '%-m/%-d/%Y %-H:%M') AS invoiced, "
    "invoice_no AS invoice, key AS item, quantity, unit_price AS price, customer_id AS customer, "
    "country FROM '{folder}/online_retail.parquet' WHERE ts < '2011-01-01') TO '{path}' (HEADER)",
}


class Asked(NamedTuple):
    """The files of events, and our answers."""

    paths: dict[str, Path]
    results: dict[str, Any]


@pytest.fixture(scope="module", params=["made up", "real"])
def answered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Each example in one pass."""
    home = tmp_path_factory.mktemp("events")
    paths, results = {}, {}
    if request.param == "real" and not REAL.exists():
        pytest.skip("no real events are beside this checkout")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name in ASKED:
            job = ct.load_job(f"examples/{name}.yaml")
            source = job.source
            paths[name] = ROOT / source.path
            if request.param == "real":
                paths[name] = home / f"{name}.csv"
                with connect() as connection:
                    connection.execute(FROM_REAL[name].format(folder=REAL, path=paths[name]))
                source = source.model_copy(update={"path": str(paths[name])})
            results[name] = ct.run(source, job.build(), job.time, spark=False)
    return Asked(paths, results)


def test_every_question_is_asked(answered: Asked) -> None:
    for name, questions in ASKED.items():
        assert list(answered.results[name]) == list(questions)
        assert len(questions) == 8
        assert answered.results[name].counts["bad"] == 0


@pytest.mark.parametrize(
    ("example", "name"), [(example, name) for example, asked in ASKED.items() for name in asked]
)
def test_the_same_answer_as_duckdb(
    example: str, name: str, answered: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    theirs = ASKED[example][name]
    bounds = f"w AS window_start, w + to_seconds({theirs.seconds}) AS window_end"
    with connect() as connection:
        made = TABLES[example].format(path=answered.paths[example])
        start = (
            f"time_bucket(to_seconds({theirs.seconds}), {TIMES[example]}, TIMESTAMP '1970-01-01')"
        )
        connection.execute(f"CREATE TABLE t AS SELECT *, {start} AS w FROM ({made})")
        if name == "visitors":  # an hour, every half
            connection.execute("UPDATE t SET w = time_bucket(INTERVAL 30 minutes, stamp)")
        found = connection.sql(theirs.text.replace("@", bounds))
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    wanted = [{key: plain_value(value) for key, value in row.items()} for row in rows]
    assert wanted
    assert_same(wanted, answered.results[example][name], f"{example}: {name}", keys=theirs.keys)


def test_the_events_are_those_that_the_script_makes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    script = tmp_path / "make_data.py"
    script.write_text((ROOT / "examples/make_data.py").read_text())
    subprocess.run([sys.executable, str(script)], check=True)
    for made in (tmp_path / "data").iterdir():
        kept = ROOT / "examples/data" / made.name
        assert gzip.decompress(made.read_bytes()) == gzip.decompress(kept.read_bytes())
