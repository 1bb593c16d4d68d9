"""Values as of given times, against brute force."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import catchment as ct
from catchment import point_in_time
from catchment.errors import CatchmentError, LimitError

SECOND = 1_000_000


def drawn(seed: int, count: int = 120) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    return [
        {
            "ts": dice.randrange(100) * SECOND,
            "k": dice.choice(["a", "b", None]),
            "j": dice.randrange(2),
            "v": dice.choice([1.0, 2.0, 5.0, None]),
        }
        for _ in range(count)
    ]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {"ts": pa.timestamp("us"), "k": pa.string(), "j": pa.int64(), "v": pa.float64()}
    return pa.Table.from_pylist(rows, pa.schema(columns))


def brute(rows: list[dict[str, Any]], key: dict[str, Any], at: int, length: int) -> Any:
    """Sum, count and median of what the key had before a time."""
    mine = [
        row["v"]
        for row in rows
        if at - length <= row["ts"] < at and all(row[n] == value for n, value in key.items())
    ]
    if not mine:
        return None, None, None
    some = sorted(v for v in mine if v is not None)
    half = len(some) // 2
    middle = None if not some else (some[half] + some[-half - 1]) / 2
    return (sum(some) if some else None), len(mine), middle


AGGREGATES = ct.sum("v").alias("s"), ct.count().alias("n"), ct.median("v").alias("m")
LOOKBACKS = {"3s": 3, "10s": 10, "2m": 120}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by", [(), ("k",), ("k", "j")])
def test_as_brute_force_has_it(seed: int, by: tuple[str, ...]) -> None:
    rows = drawn(seed)
    dice = random.Random(seed)
    asked = [
        {"ts": dice.randrange(-5, 130) * SECOND, "k": dice.choice(["a", "b", None, "z"]), "j": 1}
        for _ in range(40)
    ]
    given = ct.as_of(
        table(rows), *AGGREGATES, at=table(asked), lookbacks=list(LOOKBACKS), by=by
    ).to_pylist()
    assert len(given) == len(asked)
    for row, want in zip(given, asked, strict=True):
        key = {name: want[name] for name in by}
        assert {name: row[name] for name in by} == key
        for name, seconds in LOOKBACKS.items():
            found = tuple(row[f"{a}_{name}"] for a in "snm")
            assert found == brute(rows, key, want["ts"], seconds * SECOND)


def test_of_listed_times_there_is_a_row_for_each_key_with_an_event() -> None:
    rows = drawn(1)
    times = [50 * SECOND, 20 * SECOND]
    given = ct.as_of(
        table(rows), *AGGREGATES, at=times, lookbacks=["3s", "10s"], by="k", where="v > 1"
    )
    kept = [row for row in rows if row["v"] is not None and row["v"] > 1]
    wanted = [
        (at, k, *brute(kept, {"k": k}, at, 3 * SECOND), *brute(kept, {"k": k}, at, 10 * SECOND))
        for at in sorted(times)
        for k in ("a", "b", None)
        if brute(kept, {"k": k}, at, 10 * SECOND)[1]
    ]
    times_given = given.column("as_of").cast(pa.int64()).to_pylist()
    columns = [f"{a}_{length}" for length in ("3s", "10s") for a in "snm"]
    found = zip(times_given, *(given[name].to_pylist() for name in ("k", *columns)), strict=True)
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"at": "2026-01-01"},
            (
                "times to look back from are a list, or a table of keys and times (given: "
                '\'2026-01-01\'); try at=["2026-01-01", "2026-02-01"]'
            ),
        ),
        ({"at": []}, "no times are given (given: at); give at least one"),
        (
            {"lookbacks": "1h"},
            'lookbacks are a list of durations (given: \'1h\'); try lookbacks=["1h", "1d"]',
        ),
        (
            {"at": pa.table({"t": [1]})},
            "the table of times has no such column (given: ts); did you mean 't'?",
        ),
        (
            {"at": pa.table({"ts": pa.array([1], pa.timestamp("s"))})},
            "the table of times has no such column (given: k); known: ts",
        ),
        (
            {"at": pa.table({"ts": pa.array([None], pa.timestamp("s")), "k": ["a"]})},
            (
                "a time to look back from is missing (given: row 0 of ts); leave out rows without "
                "a time"
            ),
        ),
    ],
)
def test_mistakes(options: dict[str, Any], text: str) -> None:
    given = {"at": [0], "lookbacks": ["1s"], "by": "k"} | options
    with pytest.raises(CatchmentError) as caught:
        ct.as_of(table(drawn(0)), ct.count(), **given)
    assert str(caught.value) == text


def test_it_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_in_time, "MOST_WINDOWS", 3)
    with pytest.raises(LimitError, match="2 times and 2 lookbacks"):
        ct.as_of(table(drawn(0)), ct.count(), at=[0, 1], lookbacks=["1s", "2s"])
