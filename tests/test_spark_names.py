"""The table of Spark's aggregates says what SQL text really gives."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import catchment as ct
from catchment.errors import QueryError
from catchment.functions.spark_names import APPROXIMATE, REFUSED, WRITTEN

EVENTS = pa.table(
    {
        "ts": pa.array([1, 2, 3], pa.timestamp("s")),
        "v": [1.5, 2.5, 4.0],
        "n": [1, 2, 4],
        "t": [True, False, True],
        "s": ["a", "b", "c"],
    }
)


def query(call: str) -> ct.Query:
    return ct.sql(f"SELECT {call} AS x FROM events GROUP BY window(ts, '1 minute')", "q")


def test_what_is_written_so_gives_a_value() -> None:
    queries = []
    for name, call in WRITTEN.items():
        assert call.startswith(f"{name}(")
        queries.append(ct.Query.from_dict(query(call).to_dict() | {"name": name}))
    results = ct.run(EVENTS, queries, spark=False)
    for name in WRITTEN:
        assert results[name]["x"].null_count == 0 and results[name].num_rows == 1, name


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_do_instead(name: str) -> None:
    with pytest.raises(QueryError) as caught:
        query(f"{name}(v)")
    assert str(caught.value) == (
        f"this function of Spark is not supported (given: {name}); {REFUSED[name]}"
    )


def test_the_names_are_sparks() -> None:
    functions = pytest.importorskip("pyspark.sql.functions")
    of_sql_alone = {"any", "percentile_cont", "percentile_disc"}
    unknown = {name for name in (*WRITTEN, *REFUSED) if not hasattr(functions, name)}
    assert {name for name in unknown if not name.startswith("approx_top_k")} == of_sql_alone
    found = {name for name in dir(functions) if re.search("_agg(_(?!distinct)|$)", name)}
    assert found <= {*WRITTEN, *REFUSED}
    assert set(WRITTEN) >= APPROXIMATE and not set(WRITTEN) & set(REFUSED)


def test_the_reference_lists_every_name() -> None:
    page = Path(__file__).parent.parent / "docs" / "reference" / "functions.md"
    listed = re.findall(r"^\| `(\w+)` \|", page.read_text(), re.MULTILINE)
    assert listed == sorted({*WRITTEN, *REFUSED})
