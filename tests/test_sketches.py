"""Sketches in columns, held against datasketches, which takes one value at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.engine.rows import merge_fields
from catchment.errors import StateError
from catchment.operators import Grouping
from catchment.operators.coupons import coupons_of
from catchment.operators.hll import HLL_LOG2, LIST_MOST, SET_MOST, estimates
from catchment.operators.kll import KLL_K, quantiles
from catchment.operators.murmur import hash_numbers, hash_texts
from catchment.operators.ragged import plain as column
from small_tables import examples, table
from test_operator_laws import bound, lifted

SHARES = (0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1.0)
Sketch = bytes | None


def sketch(kind: str, type: pa.DataType, values: Sequence[Any]) -> Sketch:
    """What an operator makes of values."""
    rows = [(0, arrival, value) for arrival, value in enumerate(values)]
    (made,) = lifted(bound(kind, type), type, rows).values()
    (only,) = column(made).tolist()
    assert only is None or isinstance(only, bytes)
    return only


def objects(sketches: Sequence[Sketch]) -> Any:
    out = np.empty(len(sketches), object)
    out[:] = sketches
    return out


def merge(kind: str, type: pa.DataType, parts: Sequence[Sketch], codes: Sequence[int]) -> Any:
    """The sketch of each group of sketches."""
    groups = Grouping(np.array(codes, np.int64), max(codes) + 1)
    fields = {f"{kind}(v).sketch": objects(parts)}
    (merged,) = merge_fields(fields, groups, bound(kind, type)).values()
    return column(merged).tolist()


def updated(values: Sequence[Any]) -> Any:
    made = ds.hll_sketch(HLL_LOG2, ds.HLL_8)
    for value in values:
        made.update(value)
    return made


def coupon(value: Any) -> int:
    """The coupon that datasketches makes of a value."""
    return int.from_bytes(updated([value]).serialize_compact()[8:], "little")


# Hashes.

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, -(2**63)])
DOUBLES = st.floats() | st.sampled_from([math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0])
TEXTS = st.text(min_size=1, max_size=70).filter(lambda text: text.isprintable()) | st.sampled_from(
    ["\0", "a", "å", "a\u030a", "日本語", "🙂" * 4, "x" * 15, "x" * 16, "x" * 17, "x" * 64]
)


@examples(0.5)
@given(st.lists(WHOLE, max_size=20), st.lists(DOUBLES, max_size=20), st.lists(TEXTS, max_size=20))
def test_hashes_are_those_of_datasketches(
    whole: list[int], doubles: list[float], texts: list[str]
) -> None:
    of_whole = coupons_of(*hash_numbers(np.array(whole, np.int64)))
    assert of_whole.tolist() == [coupon(value) for value in whole]
    of_doubles = coupons_of(*hash_numbers(np.array(doubles, np.float64)))
    assert of_doubles.tolist() == [coupon(value) for value in doubles]
    assert coupons_of(*hash_texts(texts)).tolist() == [coupon(text) for text in texts]
    as_bytes = [text.encode() for text in texts]
    assert coupons_of(*hash_texts(as_bytes)).tolist() == [coupon(text) for text in texts]


def test_texts_of_every_length() -> None:
    texts = ["é" * (length // 2) + "x" * (length % 2) for length in range(1, 200)]
    assert coupons_of(*hash_texts(texts)).tolist() == [coupon(text) for text in texts]


def test_every_number_of_leading_zeros() -> None:
    """A coupon counts the zeros before the first bit, up to 62, whatever follows that bit."""
    low = np.zeros(65, np.uint64)
    for rest in (0, 2**64 - 1):
        high = np.array(
            [(2**64 - 1 if rest else 2**63) >> zeros & rest | 2**63 >> zeros for zeros in range(64)]
            + [0],
            np.uint64,
        )
        numbers = coupons_of(low, high) >> np.uint32(26)
        assert numbers.tolist() == [min(zeros, 62) + 1 for zeros in range(65)]


def test_levels_are_hashed_as_what_they_are() -> None:
    """A dictionary column, whatever is in it, has the sketch of a plain one."""
    cases: list[tuple[pa.DataType, list[Any]]] = [
        (pa.int64(), [-1, 5, 5, None, 2**53 + 1]),
        (pa.float64(), [0.5, -0.5, None, 1e300]),
        (pa.string(), ["a", "", "å", None, "a"]),
        (pa.binary(), [b"\xff", b"", b"a", None]),
    ]
    for type, values in cases:
        encoded = pa.dictionary(pa.int32(), type)
        assert sketch("hll", encoded, values) == sketch("hll", type, values)


def test_numbers_beyond_int64_are_told_apart() -> None:
    values = [2**64 - 1, 2**64 - 2, 2**63, 2**63 + 1, 7]
    found = sketch("hll", pa.uint64(), values)
    assert estimates(objects([found])).tolist() == [5]
    assert sketch("hll", pa.uint64(), [7]) == sketch("hll", pa.int64(), [7])


# HLL.


def assert_same_hll(ours: Sketch, theirs: Any) -> None:
    """The same preamble, and the same coupons or registers; how full it is decides the form."""
    if theirs.is_empty():
        assert ours is None
        return
    assert ours is not None
    data = theirs.serialize_compact()
    assert len(ours) == len(data)
    if data[7] & 3 == 2:  # registers: all but the flags and the estimate by order of updates
        assert ours[:5] == data[:5] and ours[6:8] == data[6:8] and ours[16:] == data[16:]
        return
    preamble = 4 * data[0]
    assert ours[:preamble] == data[:preamble]
    coupons = (np.frombuffer(d[preamble:], np.uint32) for d in (ours, data))
    mine, other = (np.sort(c).tolist() for c in coupons)
    assert mine == other
    assert ds.hll_sketch.deserialize(ours).get_estimate() == theirs.get_estimate()
    assert estimates(objects([ours])).tolist() == [round(theirs.get_estimate())]


def test_a_sketch_of_every_size_up_to_registers() -> None:
    """Lists, sets of every size of table, and registers."""
    source = np.random.default_rng(1)
    values = source.normal(size=SET_MOST + 60).tolist()
    theirs = ds.hll_sketch(HLL_LOG2, ds.HLL_8)
    lengths = set()
    for size in range(len(values) + 1):
        ours = sketch("hll", pa.float64(), values[:size])
        assert_same_hll(ours, theirs)
        lengths.add(len(ours or b"") // 4 - size)
        if size < len(values):
            theirs.update(values[size])
    assert {0, 2, 3} < lengths and LIST_MOST < SET_MOST


@pytest.mark.parametrize("size", [1000, 20_000, 300_000])
def test_registers(size: int) -> None:
    values = np.random.default_rng(size).integers(-(2**62), 2**62, size).tolist()
    ours = sketch("hll", pa.int64(), [*values, None, *values[:100]])
    assert_same_hll(ours, updated(values))
    halves = [sketch("hll", pa.int64(), half) for half in (values[::2], values[1::2])]
    union = ds.hll_union(HLL_LOG2)
    for half in halves:
        union.update(ds.hll_sketch.deserialize(half))
    # Once two tables are joined, datasketches too estimates without the order of updates.
    joined = union.get_result(ds.HLL_8)
    assert joined.serialize_compact() == ours == merge("hll", pa.int64(), halves, [0, 0])[0]
    assert estimates(objects([ours])).tolist() == [round(joined.get_estimate())]
    assert abs(joined.get_estimate() - size) < 0.05 * size


@examples(0.5)
@given(data=st.data())
def test_merged_however_it_was_cut_a_sketch_has_the_same_bytes(data: st.DataObject) -> None:
    source = random.Random(data.draw(st.integers(0, 10**6)))
    wanted, parts, codes = [], [], []
    for group in range(data.draw(st.integers(1, 4))):
        size = data.draw(st.sampled_from([0, 1, 7, 8, 24, 25, 100, 384, 385, 600, 3000]))
        values = [source.randrange(10**9) for _ in range(size)]
        wanted.append(sketch("hll", pa.int64(), values))
        for _ in range(data.draw(st.integers(1, 5))):
            share = data.draw(st.sampled_from([0.0, 0.02, 0.3, 0.9]))
            parts.append(sketch("hll", pa.int64(), source.sample(values, int(share * size))))
            codes.append(group)
        parts.append(wanted[-1])
        codes.append(group)
    order = source.sample(range(len(parts)), len(parts))
    merged = merge("hll", pa.int64(), [parts[o] for o in order], [codes[o] for o in order])
    assert merged == wanted


def test_the_greatest_number_of_a_slot_stays() -> None:
    """Of coupons that end alike, a register keeps the greatest: in lifting and in merging."""
    values = list(range(5000))
    numbers: dict[int, int] = {}
    for made in coupons_of(*hash_numbers(np.array(values))).tolist():
        numbers[made & 4095] = max(numbers.get(made & 4095, 0), made >> 26)
    registers = [numbers.get(slot, 0) for slot in range(4096)]
    whole = sketch("hll", pa.int64(), values)
    few = sketch("hll", pa.int64(), values[4700:])
    many = sketch("hll", pa.int64(), values[:4700])
    assert whole is not None and list(whole[40:]) == registers
    assert merge("hll", pa.int64(), [few, many], [0, 0]) == [whole]


# KLL.


def read(data: Sketch) -> Any:
    assert data is not None
    made = ds.kll_doubles_sketch.deserialize(data)
    assert made.serialize() == data  # nothing in it is lost, nor in another place
    return made


def assert_quantiles(data: Sketch, values: Any, slack: float) -> None:
    """Ours are those that datasketches reads from the bytes, and near enough."""
    made = read(data)
    assert (made.n, made.get_min_value(), made.get_max_value()) == (
        len(values),
        values.min(),
        values.max(),
    )
    for q in SHARES:
        found = float(quantiles(objects([data]), q)[0])
        assert found == made.get_quantile(q)
        below, up_to = (values < found).mean(), (values <= found).mean()
        assert below - slack <= q <= up_to + slack


def test_quantiles_of_every_size() -> None:
    source = np.random.default_rng(2)
    for size in [*range(1, 2 * KLL_K + 50), 1000, 5000, 12_345, 200_000]:
        values = source.normal(size=size)
        data = sketch("kll", pa.float64(), values)
        exact = size <= KLL_K
        assert_quantiles(data, values, 1e-9 if exact else 0.015)
        if exact:
            theirs = ds.kll_doubles_sketch(KLL_K)
            theirs.update(values)
            assert len(theirs.serialize()) == len(data or b"")
            for q in SHARES:
                assert quantiles(objects([data]), q)[0] == theirs.get_quantile(q)


def test_what_is_no_number_is_passed_over() -> None:
    values = [math.nan, 1.0, math.inf, None, -0.0, -math.inf, math.nan]
    data = sketch("kll", pa.float64(), values)
    assert_quantiles(data, np.array([1.0, math.inf, 0.0, -math.inf]), 1e-9)
    assert sketch("kll", pa.float64(), [math.nan, None]) is None
    assert sketch("kll", pa.float64(), []) is None
    assert np.isnan(quantiles(objects([None]), 0.5)).tolist() == [True]


@pytest.mark.parametrize("sizes", [[3] * 40, [150, 100], [1, 5000], [40_000] * 6, [300] * 200])
def test_merging_keeps_the_error(sizes: list[int]) -> None:
    """All at once, one after the other, and by datasketches from our bytes."""
    source = np.random.default_rng(3)
    values = [source.gamma(2.0, size=size) for size in sizes]
    parts = [sketch("kll", pa.float64(), part) for part in values]
    every = np.concatenate(values)
    slack = 1e-9 if len(every) <= KLL_K else 0.02
    assert_quantiles(merge("kll", pa.float64(), parts, [0] * len(parts))[0], every, slack)
    one = parts[0]
    theirs = read(parts[0])
    for part in parts[1:]:
        (one,) = merge("kll", pa.float64(), [part, one], [0, 0])
        theirs.merge(read(part))
    assert_quantiles(one, every, slack)
    # Theirs throws dice, new ones in every run: eight times its deviation is never reached.
    lucky = slack if len(every) <= KLL_K else 0.04
    by_theirs = theirs.serialize()
    assert_quantiles(by_theirs, every, lucky)
    (both,) = merge("kll", pa.float64(), [by_theirs, one], [0, 0])
    assert_quantiles(both, np.concatenate([every, every]), lucky)


def test_many_sketches_at_once_are_each_alone() -> None:
    source = np.random.default_rng(4)
    sizes = source.choice([1, 2, 30, 199, 200, 201, 700, 3000], 60)
    values = [source.normal(size=size) for size in sizes]
    codes = source.integers(0, 7, len(sizes)).tolist()
    parts = [sketch("kll", pa.float64(), part) for part in values]
    together = merge("kll", pa.float64(), parts, codes)
    for group, found in enumerate(together):
        mine = [part for part, code in zip(parts, codes, strict=True) if code == group]
        alone = merge("kll", pa.float64(), mine, [0] * len(mine))
        assert alone == [found]
    at_once = [float(value) for value in quantiles(objects(together), 0.3)]
    assert at_once == [float(quantiles(objects([one]), 0.3)[0]) for one in together]


def test_the_same_partials_give_the_same_quantiles() -> None:
    """In any order of merging at once: no dice are thrown."""
    values = np.random.default_rng(5).normal(size=30_000)
    parts = [sketch("kll", pa.float64(), part) for part in np.split(values, 10)]
    assert parts == [sketch("kll", pa.float64(), part) for part in np.split(values, 10)]
    (once,) = merge("kll", pa.float64(), parts, [0] * 10)
    assert merge("kll", pa.float64(), parts[::-1], [0] * 10) == [once]


# Bytes that are not ours.


@pytest.mark.parametrize("kind", ["hll", "kll"])
@pytest.mark.parametrize("size", [1, 5, 100, 5000])
def test_damaged_sketches_are_refused(kind: str, size: int) -> None:
    good = sketch(kind, pa.float64(), np.arange(size) * 1.5)
    assert good is not None
    damaged = [b"", good[:-1], good[:-4], good + bytes(4), b"\7" + good[1:], good[:3] + b"\x55"]
    for bad in damaged:
        with pytest.raises(StateError, match="holds a sketch that is damaged") as caught:
            merge(kind, pa.float64(), [good, bad], [0, 0])
        assert f"{len(bad)} bytes that begin with" in str(caught.value)
        with pytest.raises(StateError, match="written by something else"):
            (estimates if kind == "hll" else lambda s: quantiles(s, 0.5))(objects([bad]))


# The engine.


def test_few_values_of_many_keys_are_exact() -> None:
    source = np.random.default_rng(6)
    rows = 30_000
    events = table(
        np.sort(source.integers(0, 50, rows)).tolist(),
        k=source.integers(0, 400, rows),
        t=pa.array([f"text {i}" for i in source.integers(0, 90, rows)]),
        v=source.integers(0, 1000, rows) / 8,
    )
    query = ct.Query(
        "q",
        ct.count_distinct("t").alias("exact"),
        ct.approx_count_distinct("t").alias("about"),
        ct.median("v").alias("middle"),
        ct.approx_median("v").alias("near"),
        by="k",
        window=ct.tumbling("10us"),
    )
    engine = ct.Engine([query])
    for begin in range(0, rows, 7000):
        engine.push(events.slice(begin, 7000))
    found = engine.close()["q"]
    assert found.num_rows == 2000
    assert found["exact"].equals(found["about"])
    # Of so few values all are kept, and the one of rank n // 2 is given.
    groups: dict[tuple[int, int], list[float]] = {}
    for time, key, value in zip(
        events["ts"].cast(pa.int64()).to_pylist(),
        events["k"].to_pylist(),
        events["v"].to_pylist(),
        strict=True,
    ):
        groups.setdefault((time // 10 * 10, key), []).append(value)
    starts = found["window_start"].cast(pa.int64()).to_pylist()
    for start, key, near in zip(
        starts, found["k"].to_pylist(), found["near"].to_pylist(), strict=True
    ):
        values = sorted(groups[start, key])
        assert near == values[len(values) // 2]


def test_columns_without_rows() -> None:
    assert estimates(objects([])).tolist() == [] and quantiles(objects([]), 0.5).tolist() == []
