"""Keys and values of every Arrow type, times of every unit, tables of every shape."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import catchment as ct
from catchment.functions import make
from small_tables import SECOND, everything, seconds, table, values

NAN = math.nan
WHOLE = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.date32(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    pa.timestamp("s"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us", "Asia/Tokyo"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "+05:30"),
]
DECIMALS = [pa.decimal32(7, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal256(50, 2)]


def dictionary(indices: list[int | None], known: list[Any], index: Any = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, index), pa.array(known))


def uuids() -> pa.Array:
    storage = pa.array([b"a" * 16, b"b" * 16, None, b"a" * 16], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def fine(kind: pa.DataType) -> int:
    """Python shows no nanoseconds: values of whole microseconds."""
    return 1000 if "[ns" in str(kind) else 1


# Four values, the first and the last alike.
KEYS: dict[str, pa.Array] = {
    **{
        str(kind): pa.array([n * fine(kind) if n else n for n in (1, 2, None, 1)], kind)
        for kind in WHOLE
    },
    **{str(kind): pa.array([Decimal("1.1"), 2, None, Decimal("1.1")], kind) for kind in DECIMALS},
    "date64": pa.array([86_400_000, 0, None, 86_400_000]).view(pa.date64()),
    "int64 lowest": pa.array([-(2**63), 1 - 2**63, None, -(2**63)]),
    "int64 highest": pa.array([2**63 - 1, 2**63 - 2, 2**63 - 3, 2**63 - 1]),
    "int64 both ends": pa.array([2**63 - 1, -(2**63), 0, 2**63 - 1]),
    "uint64 highest": pa.array([2**64 - 1, 2**64 - 2, 2**64 - 3, 2**64 - 1], pa.uint64()),
    "uint64 middle": pa.array([2**63 - 1, 2**63 - 2, 2**63 - 3, 2**63 - 1], pa.uint64()),
    "float16": pa.array([1.5, NAN, None, 1.5], pa.float16()),
    "float32": pa.array([1.5, NAN, None, 1.5], pa.float32()),
    "float64": pa.array([NAN, math.inf, None, -NAN]),
    "bool": pa.array([True, False, None, True]),
    "string": pa.array(["å", "a\u030a", "", "å"]),
    "large_string": pa.array(["ß", "SS", None, "ß"], pa.large_string()),
    "binary": pa.array([b"\0", b"", None, b"\0"]),
    "large_binary": pa.array([b"\xff", b"", None, b"\xff"], pa.large_binary()),
    "fixed_size_binary": pa.array([b"ab", b"cd", None, b"ab"], pa.binary(2)),
    "dictionary": dictionary([0, 1, None, 0], ["a", "b"]),
    "dictionary of int8": dictionary([0, 1, None, 0], [5, 6], pa.int8()),
    "dictionary, null inside": dictionary([0, 2, 1, 0], ["a", None, "b"]),
    "dictionary, repeated": dictionary([0, 2, None, 1], ["a", "a", "b"]),
    "list": pa.array([[1, 2], [], None, [1, 2]]),
    "list of floats": pa.array([[NAN], [0.0], None, [NAN]]),
    "large_list": pa.array([[1], [], None, [1]], pa.large_list(pa.int8())),
    "fixed_size_list": pa.array([[1, 2], [3, 4], None, [1, 2]], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": None}, None, {"a": 1, "b": "x"}]),
    "map": pa.array([[("a", 1)], [], None, [("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "interval": pa.array([(1, 2, 3), (0, 0, 1), None, (1, 2, 3)], pa.month_day_nano_interval()),
    "uuid": uuids(),
}
WINDOWS = {
    "tumbling": ct.tumbling("10s"),
    "session": ct.session("1s"),
    "cut": ct.cut("v = 4"),
    "count": ct.count_tumbling(1),
}


@pytest.mark.parametrize("kind", ["tumbling", "count"])
@pytest.mark.parametrize("name", list(KEYS))
def test_a_key_of_every_type(name: str, kind: str) -> None:
    """Two equal keys of four, in two batches, with a snapshot between, and through the verbs."""
    key = KEYS[name]
    query = ct.Query("q", ct.count().alias("n"), by="k", window=WINDOWS[kind])
    events = table([1, 2, 3, 4], k=key, v=[1, 2, 3, 4])
    engine = ct.Engine([query])
    engine.push(events)
    engine = ct.Engine.restore(engine.snapshot())
    engine.push(events.slice(0, 1))
    plan = ct.plan([query])
    parts = [ct.slice(events, plan), ct.slice(events.slice(0, 1), plan, seq=1, arrival=4)]
    for results in (engine.close(), ct.assemble(ct.merge(parts, plan), None, plan)):
        found = results["q"]
        kind_of_key = key.type.value_type if pa.types.is_dictionary(key.type) else key.type
        assert found.schema.field("k").type == kind_of_key
        counted: Counter[str] = Counter()
        for text, n in zip(map(repr, found["k"].to_pylist()), found["n"].to_pylist(), strict=True):
            counted[text] += n
        expected = Counter(map(repr, key.to_pylist() + key.to_pylist()[:1]))
        assert counted == expected
        assert found.num_rows == (3 if kind == "tumbling" else 5)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_zeros_are_one_key_and_nans_are_one_key(kind: pa.DataType) -> None:
    keys = pa.array([0.0, -0.0, NAN, -NAN, None], kind)
    query = ct.Query("q", ct.count().alias("n"), by="k", window=ct.tumbling("10s"))
    found = everything([query], table([1, 2, 3, 4, 5], k=keys), table([6], k=keys.slice(1, 1)))
    rows = sorted((str(k), n) for k, n in values(found, "q"))
    assert rows == [("0.0", 3), ("None", 1), ("nan", 2)]


def test_nanoseconds_tell_keys_and_values_apart() -> None:
    """Python's time of day has no nanoseconds."""
    clock = pa.array([1, 2, 1], pa.time64("ns"))
    queries = [
        ct.Query("q", ct.count().alias("n"), by="k", window=ct.tumbling("10s")),
        ct.Query("d", ct.count_distinct("k"), ct.max("k"), window=ct.tumbling("10s")),
    ]
    found = everything(queries, table([1, 2, 3], k=clock))
    assert sorted(found["q"]["n"].to_pylist()) == [1, 2]
    assert found["d"]["count_distinct(k)"].to_pylist() == [2]
    assert found["d"]["max(k)"].cast(pa.int64()).to_pylist() == [2]


def test_the_null_type_is_a_key() -> None:
    query = ct.Query("q", ct.count().alias("n"), by=["k", "j"], window=ct.tumbling("10s"))
    found = everything([query], table([1, 2], k=pa.nulls(2), j=["a", "b"]))
    assert sorted(values(found, "q")) == [(None, "a", 1), (None, "b", 1)]


def test_dictionaries_that_differ_between_batches_and_chunks() -> None:
    query = ct.Query("q", ct.count().alias("n"), ct.min("k"), by="k", window=ct.tumbling("10s"))
    first = dictionary([0, 1, 0], ["a", "b"])
    second = dictionary([0, 1, None], ["b", "a"])
    chunked = pa.chunked_array([first, second])
    found = everything([query], table(range(6), k=chunked), table([7, 8, 9], k=second))
    assert sorted(values(found, "q"), key=str) == [("a", 4, "a"), ("b", 3, "b"), (None, 2, None)]


@pytest.mark.parametrize("window", [ct.tumbling("10s"), ct.count_tumbling(1)])
@pytest.mark.parametrize("chunked", [True, False])
def test_dictionaries_too_large_together_for_their_index(window: Any, chunked: bool) -> None:
    """Each fits int8, both together do not."""
    kind = pa.dictionary(pa.int8(), pa.string())
    one, two = (
        pa.array([f"{letter}{i}" for i in range(100)]).dictionary_encode().cast(kind)
        for letter in "ab"
    )
    query = ct.Query("q", ct.last("k"), by="k", window=window)
    if chunked:
        tables = [table(range(200), k=pa.chunked_array([one, two]))]
    else:
        tables = [table(range(100), k=one), table(range(100, 200), k=two)]
    assert len(values(everything([query], *tables), "q")) == 200


def test_several_keys_and_unicode() -> None:
    query = ct.Query(
        "größe",
        ct.count().alias("n"),
        by=["städte", "日"],
        where="`städte` <> '東京'",
        window=ct.tumbling("10s"),
    )
    events = table([1, 2, 3, 4], städte=["Köln", "Köln", "東京", "🜁"], 日=[1, 1, 1, None])
    assert sorted(values(everything([query], events), "größe")) == [("Köln", 1, 2), ("🜁", None, 1)]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 8])
def test_many_integer_keys_do_not_run_into_each_other(count: int) -> None:
    names = [f"k{i}" for i in range(count)]
    query = ct.Query("q", ct.count().alias("n"), by=names, window=ct.tumbling("1s"))
    keys = {name: [0, 4095] * 20 for name in names}
    found = everything([query], seconds(range(40), **keys))["q"]
    assert found.num_rows == 40
    assert set(found["n"].to_pylist()) == {1}
    assert set(zip(*(found[name].to_pylist() for name in names), strict=True)) == {
        (0,) * count,
        (4095,) * count,
    }


# Aggregated columns.

ORDERED = {
    name: array
    for name, array in KEYS.items()
    if not pa.types.is_nested(array.type) and name not in ("interval", "uuid")
}


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("name", list(ORDERED))
def test_functions_that_keep_the_type(name: str, snapshot: bool) -> None:
    array = ORDERED[name]
    functions = ["min", "max", "first", "last", "mode"]
    queries = [
        ct.Query("q", *(make(f, "v").alias(f) for f in functions), window=ct.tumbling("10s")),
        # By itself each has an operator of its own, rather than share one sort.
        *(ct.Query(f, make(f, "v").alias(f), by="g", window=ct.tumbling("10s")) for f in functions),
        ct.Query("n", ct.count_distinct("v").alias("n"), window=ct.count_tumbling(4)),
    ]
    engine = ct.Engine(queries)
    events = table([1, 2, 3, 4], v=array, g=[0, 0, 0, 0])
    engine.push(events.slice(0, 2))
    engine.push(events.slice(2))
    if snapshot:
        engine = ct.Engine.restore(engine.snapshot())
    results = engine.close()
    known = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    plain = array.cast(known) if array.type != known else array
    usual = plain.cast(pa.float64()) if pa.types.is_floating(known) else plain
    sortable = usual
    if pa.types.is_decimal(usual.type):  # not all widths have a kernel
        sortable = usual.cast(pa.decimal128(38, usual.type.scale))
    order = pc.array_sort_indices(sortable).to_pylist()  # nulls last; NaN before them
    valid = [i for i in order if plain[i].is_valid]
    picked = {"min": valid[0], "max": valid[-1], "first": 0, "last": 3, "mode": 0}
    for function, at in picked.items():
        for source in (results["q"], results[function]):
            assert source.schema.field(function).type == known
            assert str(source[function][0]) == str(plain[at]), function
    distinct = len(set(map(repr, plain.drop_null().to_pylist())))
    assert results["n"]["n"].to_pylist() == [distinct]


@pytest.mark.parametrize("name", ["list", "struct", "map", "large_list", "fixed_size_list", "uuid"])
@pytest.mark.parametrize("snapshot", [False, True])
def test_first_and_last_take_anything(name: str, snapshot: bool) -> None:
    array = KEYS[name]
    query = ct.Query("q", ct.first("v"), ct.last("v"), ct.count("v"), window=ct.tumbling("10s"))
    engine = ct.Engine([query])
    engine.push(table([4, 2], v=array.slice(2)))
    engine.push(table([3, 1], v=array.slice(0, 2)))
    if snapshot:
        engine = ct.Engine.restore(engine.snapshot())
    assert values(engine.close(), "q") == [(array[1].as_py(), array[0].as_py(), 3)]
    plan = ct.plan([query])
    parts = [ct.slice(table([1], v=array.slice(i, 1)), plan, node=i) for i in range(2)]
    results = ct.assemble(ct.merge(parts, plan), None, plan)
    assert values(results, "q") == [(array[0].as_py(), array[1].as_py(), 2)]


NULL_THEN = {
    "bool": pa.array([None, False]),
    "date32": pa.array([None, 5], pa.int32()).view(pa.date32()),
    "date32 before 1970": pa.array([None, -5], pa.int32()).view(pa.date32()),
    "time32": pa.array([None, 5], pa.int32()).view(pa.time32("s")),
    "int8": pa.array([None, -5], pa.int8()),
    "dictionary of int": pa.array([None, 5]).dictionary_encode(),
    "dictionary of negative int": pa.array([None, -5]).dictionary_encode(),
    "float": pa.array([None, -1.5]),
    "string": pa.array([None, "a"]),
}


@pytest.mark.parametrize("name", list(NULL_THEN))
def test_a_slice_of_nulls_alone_changes_nothing_after_a_snapshot_or_on_the_wire(name: str) -> None:
    array = NULL_THEN[name]
    functions = [make(f, "v").alias(f) for f in ("min", "max", "first", "last")]
    queries = [
        ct.Query("q", *functions, window=ct.tumbling("10s")),
        ct.Query("cuts", *functions, window=ct.tumbling("1s")),
    ]
    events = seconds([0.5, 1.5], v=array)
    engine = ct.Engine(queries)
    engine.push(events)
    plan = ct.plan(queries)
    merged = ct.merge([ct.slice(events, plan)], plan)
    expected = [(array[1].as_py(),) * 4]
    assert values(engine.close(), "q") == expected
    again = ct.Engine(queries)
    again.push(events)
    assert values(ct.Engine.restore(again.snapshot()).close(), "q") == expected
    assert values(ct.assemble(merged, None, plan), "q") == expected


def test_a_dictionary_of_floats_holds_nan_as_any_float_column() -> None:
    functions = ["min", "max", "count_distinct", "mode"]
    query = ct.Query("q", *(make(f, "v") for f in functions), window=ct.tumbling("10s"))
    events = table([1, 2, 3], v=dictionary([0, 1, 2], [NAN, 1.0, NAN]))
    more = table([4], v=dictionary([0], [2.0]))
    assert repr(values(everything([query], events, more), "q")) == "[(1.0, nan, 3, nan)]"


@pytest.mark.parametrize("function", ["avg", "sum", "variance", "product", "median", "range"])
@pytest.mark.parametrize("column", ["s", "b", "t", "l"])
def test_a_number_is_needed(function: str, column: str) -> None:
    query = ct.Query("q", make(function, column), window=ct.tumbling("10s"))
    events = table([1], s=["x"], b=[True], t=pa.array([1], pa.date32()), l=[[1]])
    with pytest.raises(ct.SchemaError) as caught:
        everything([query], events)
    assert caught.value.what == f"query 'q': {function} needs a number"
    assert str(caught.value.given) == f"{column} is {events.schema.field(column).type}"
    assert caught.value.hint


@pytest.mark.parametrize("kind", DECIMALS)
def test_numbers_of_decimals(kind: pa.DataType) -> None:
    query = ct.Query("q", ct.sum("v"), ct.avg("v"), ct.median("v"), window=ct.tumbling("10s"))
    events = table([1, 2, 3], v=pa.array([Decimal("1.5"), None, Decimal("2.5")], kind))
    assert [float(x) for x in values(everything([query], events), "q")[0]] == [4.0, 2.0, 2.0]


def test_sums_that_do_not_fit_are_null() -> None:
    query = ct.Query(
        "q", ct.sum("v"), ct.avg("v"), ct.range("v"), by="k", window=ct.tumbling("10s")
    )
    high, low = 2**63 - 1, -(2**63)
    keys = ["over", "over", "just", "just", "under", "under", "wide", "wide"]
    numbers = [high, 1, high - 1, 1, low, -1, low, high]
    found = {
        k: rest for k, *rest in values(everything([query], table(range(8), k=keys, v=numbers)), "q")
    }
    assert found["over"] == [None, 2.0**62, high - 1]
    assert found["just"] == [high, 2.0**62, high - 2]
    assert found["under"][0] is None
    assert found["wide"] == [-1, -0.5, None]


def test_columns_of_nulls_alone() -> None:
    functions = ["sum", "avg", "min", "max", "first", "mode", "median", "count", "count_distinct"]
    for column in (pa.nulls(2), pa.nulls(2, pa.int64()), pa.nulls(2, pa.float64())):
        query = ct.Query("q", *(make(f, "v") for f in functions), window=ct.tumbling("10s"))
        found = everything([query], table([1, 2], v=column))
        assert values(found, "q") == [(None,) * 7 + (0, 0)]


# Times.


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York", "+05:30"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_and_zone(unit: str, zone: str | None) -> None:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moments = [-11, -10, -1, 0, 9, 10]
    times = pa.array([m * per for m in moments], pa.timestamp(unit, zone))
    query = ct.Query("q", ct.count().alias("n"), window=ct.tumbling("10s"))
    found = everything([query], pa.table({"ts": times}))["q"]
    assert found.schema.field("window_start").type == pa.timestamp("us", "UTC")
    first = found["window_start"].cast(pa.int64()).to_pylist()
    assert sorted(zip(first, found["n"].to_pylist(), strict=True)) == [
        (-20 * SECOND, 1),
        (-10 * SECOND, 2),
        (0, 2),
        (10 * SECOND, 1),
    ]


def test_nanoseconds_before_1970_round_down() -> None:
    times = pa.array([-1, -1000, -1001, 999], pa.timestamp("ns"))
    query = ct.Query("q", ct.count().alias("n"), window=ct.tumbling("1us"))
    found = everything([query], pa.table({"ts": times}))["q"]
    first = found["window_start"].cast(pa.int64()).to_pylist()
    assert sorted(zip(first, found["n"].to_pylist(), strict=True)) == [(-2, 1), (-1, 2), (0, 1)]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_are_times(kind: pa.DataType) -> None:
    times = pa.array([date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2)], kind)
    query = ct.Query("q", ct.count().alias("n"), window=ct.tumbling("2 days"))
    assert sorted(values(everything([query], pa.table({"ts": times})), "q")) == [(1,), (2,)]
