"""The laws that let partials be merged anywhere, in any order, any number of times."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.engine.batch import Batch
from catchment.engine.bound import BoundPlan
from catchment.engine.merger import Merger
from catchment.engine.partials import Partials
from catchment.engine.rows import Operators, empty_names, flat, identity_fields, merge_fields
from catchment.engine.slicer import rank
from catchment.engine.slicing import lift
from catchment.functions import make
from catchment.model.rules import EventRules
from catchment.operators import Grouping, OperatorRef, Ragged, operator_class
from catchment.operators.base import OPERATORS
from catchment.operators.product import multiply
from catchment.operators.ragged import Field, concat, take
from catchment.testing.compare import assert_same, rows_of, same
from small_tables import examples, table

# By NumPy alone, and by the loops that are compiled.
pytestmark = pytest.mark.usefixtures("loops")

Values = list[Any]

WHOLE = st.integers(-5, 5) | st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63)])
DOUBLES = st.integers(-12, 12).map(lambda i: i / 4) | st.sampled_from(
    [math.nan, math.inf, -math.inf, -0.0, 1e-200]
)
TEXTS = st.sampled_from(["", "a", "b", "å", "a\u030a", "zz"])
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), WHOLE),
    "float64": (pa.float64(), DOUBLES),
    "string": (pa.string(), TEXTS),
    "bool": (pa.bool_(), st.booleans()),
    "timestamp": (pa.timestamp("ns"), st.integers(-5, 5)),
    "binary": (pa.binary(), TEXTS.map(str.encode)),
    "decimal": (pa.decimal128(12, 2), st.integers(-5, 5).map(lambda i: Decimal(i) / 4)),
    "wide": (
        pa.decimal128(38, 2),
        st.sampled_from([Decimal("0.01"), Decimal(36 * "9" + ".99"), Decimal("-" + 36 * "9")]),
    ),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, 3, 2**63, 2**64 - 1])),
}


def pairs(*names: str) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """Arguments of a function of several columns, each of which may be null."""
    parts = {str(n): COLUMNS[name] for n, name in enumerate(names)}
    drawn = {name: st.none() | values for name, (_, values) in parts.items()}
    kinds = pa.struct([(name, type) for name, (type, _) in parts.items()])
    return kinds, st.fixed_dictionaries(drawn)


PAIRED = {
    "whole by double": pairs("int64", "float64"),
    "text by whole": pairs("string", "int64"),
    "decimal by text": pairs("decimal", "string"),
    "wide by wide": pairs("wide", "wide"),
    "double by time": pairs("float64", "timestamp"),
    "unsigned by truth": pairs("uint64", "bool"),
}
PAIRS = tuple(PAIRED)
PAIRED |= {
    "double by double": pairs("float64", "float64"),
    "decimal by double": pairs("decimal", "float64"),
}
NUMBERS, ANY = ("int64", "float64", "decimal", "wide", "uint64"), tuple(COLUMNS)
TAKES: dict[str, Sequence[str]] = {
    "count": ANY,
    "sum": NUMBERS,
    "min": ANY,
    "max": ANY,
    "product": NUMBERS,
    "squares": NUMBERS,
    "bit_and": ("int64",),
    "bit_or": ("int64",),
    "bit_xor": ("int64",),
    "max_by": PAIRS,
    "min_by": PAIRS,
    "comoments": ("double by double", "decimal by double"),
    "moments": ("float64", "decimal"),
    "first": ANY,
    "last": ANY,
    "sort": ANY,
    "distinct": ANY,
    "list": ANY,
    "counts": ANY,
    "frequent": ANY,
    "relative_buckets": NUMBERS,
    "histogram": ("float64", "decimal", "uint64"),
    "decayed": ("float64", "decimal"),
    "samples": ("float64", "decimal"),
    "kll": NUMBERS,
    "kll_whole": ("int64",),
    "hll": ANY,
    "theta": ANY,
    "user": ("int64", "string", "float64"),
    "user_columns": ("int64", "float64"),
    "digest": ("int64",),
}
PARAMS: dict[str, tuple[Any, ...]] = {
    "frequent": (20,),
    "relative_buckets": (0.01,),
    "histogram": (20,),
    "decayed": (2,),
    "theta": (4,),
    "user": ("laws_pair",),
    "user_columns": ("laws_arrays",),
}
"""Sizes at which approximate operators of few values keep all of them."""
COLUMNS |= PAIRED
CASES = [(kind, column) for kind, columns in TAKES.items() for column in columns]

ct.function(
    "laws_pair",
    lift=lambda v: (1, [str(v)]),
    lower=lambda s: float(s[0]),
    combine=lambda a, b: (a[0] + b[0], sorted(a[1] + b[1])),
)
ct.function(
    "laws_arrays",
    lift=lambda v: {"n": np.ones(len(v)), "most": v},
    lower=lambda s: s["n"],
    combine=lambda a, b: {"n": a["n"] + b["n"], "most": np.maximum(a["most"], b["most"])},
    state={"n": pa.int64(), "most": pa.float64()},
)


def test_no_operator_is_forgotten() -> None:
    known = {kind for kind in OPERATORS if OPERATORS[kind].__module__.startswith("catchment.")}
    assert known == set(TAKES)


def bound(kind: str, type: pa.DataType) -> Operators:
    """The operator, after those that it reads."""
    column = None if kind == "digest" else "v"
    ref = OperatorRef(kind, column, PARAMS.get(kind, ()))
    refs = [*operator_class(kind).requires(ref), ref]
    return {r.id: operator_class(r.kind)(r, type if r.column else None) for r in refs}


def lifted(
    operators: Operators, type: pa.DataType, rows: Sequence[tuple[int, int, Any]], groups: int = 1
) -> dict[str, Field]:
    """The partial of rows of (time, arrival, value), in one group; the other groups are empty."""
    rows = sorted(rows, key=lambda row: row[1])  # events are lifted in order of arrival
    times = np.array([row[0] for row in rows], np.int64)
    events = pa.table({"v": pa.array([row[2] for row in rows], type)})
    batch = Batch(events, times, 0)
    batch.arrivals = np.array([row[1] for row in rows], np.int64)
    codes = np.zeros(len(rows), np.int64)
    made = lift(batch, Grouping(codes, groups), operators)
    return flat(made)


def joined(operators: Operators, parts: Sequence[dict[str, Field]]) -> dict[str, Field]:
    return {name: concat([part[name] for part in parts]) for name in empty_names(operators)}


def one_pair(column: str, source: random.Random) -> dict[str, Any]:
    """Arguments of these types, none of which is null."""
    made = {
        "string": ["", "a", "b"],
        "bool": [True, False],
        "float64": [0.25, 0.5, 1.0],
        "decimal128(12, 2)": [Decimal(1), Decimal(-2)],
        "decimal128(38, 2)": [Decimal(1), Decimal(36 * "9")],
    }
    fields = PAIRED[column][0]
    names = {"double": "float64"}
    return {
        field.name: source.choice(made.get(names.get(str(field.type), str(field.type)), [1, 2, 3]))
        for field in fields
    }


def merged(operators: Operators, parts: Sequence[dict[str, Field]]) -> dict[str, Field]:
    rows = joined(operators, parts)
    count = len(next(iter(rows.values())))
    return merge_fields(rows, Grouping(np.zeros(count, np.int64), 1), operators)


def plain(fields: dict[str, Field]) -> dict[str, Any]:
    """The one row of a partial as plain values; what has many forms, in one of them."""
    row = {
        name: list(field.values) if isinstance(field, Ragged) else field.tolist()[0]
        for name, field in fields.items()
    }
    if "product(v).mantissa" in row:
        mantissa, shift = math.frexp(row["product(v).mantissa"])
        known = math.isfinite(mantissa) and mantissa != 0
        row = {"product": (mantissa, shift + row["product(v).exponent"] if known else 0)}
    if "sum(v).approx" in row:  # which only tells whether the other fits
        row["sum(v).approx"] = abs(float(row["sum(v).total"]) - row["sum(v).approx"]) > 2.0**62
    for name, value in row.items():
        if name.startswith("hll") and value is not None:
            row[name] = round(ds.hll_sketch.deserialize(value).get_estimate())
        if name.startswith("kll(") and value is not None:
            sketch = ds.kll_doubles_sketch.deserialize(value)
            row[name] = [sketch.n, *(sketch.get_quantile(q) for q in (0.0, 0.1, 0.5, 0.9, 1.0))]
    return row


def alike(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(alike(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(alike, one, two))
    return same(one, two, 1e-9, 1e-9)


@st.composite
def split_rows(draw: st.DrawFn, column: str) -> tuple[list[Any], list[list[Any]], random.Random]:
    """Rows of (time, arrival, value) with nulls and ties, whole and in parts, some empty."""
    values = draw(st.lists(st.none() | COLUMNS[column][1], max_size=12))
    rows = [(draw(st.integers(0, 4)), arrival, value) for arrival, value in enumerate(values)]
    parts: list[list[Any]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for row in rows:
        parts[draw(st.integers(0, len(parts) - 1))].append(row)
    return rows, parts, random.Random(draw(st.integers(0, 99)))


def stretches(rows: list[Any], count: int) -> list[list[Any]]:
    """Rows in order of time, then arrival, in so many parts."""
    ranked = sorted(rows, key=lambda row: row[:2])
    size = -(-len(ranked) // count) or 1
    return [ranked[n * size : (n + 1) * size] for n in range(count)]


@pytest.mark.parametrize(("kind", "column"), CASES)
@given(data=st.data())
@examples(0.15)
def test_merging_is_lifting_at_once(kind: str, column: str, data: st.DataObject) -> None:
    """Associative and commutative; an empty part and the identity change nothing."""
    rows, parts, shuffle = data.draw(split_rows(column))
    type = COLUMNS[column][0]
    operators = bound(kind, type)
    ordered = any(o.ordered(o.ref) for o in operators.values())
    if ordered:  # parts are stretches of time then, and are merged with their neighbours
        parts = stretches(rows, len(parts))
    whole = plain(lifted(operators, type, rows))
    made = [lifted(operators, type, part) for part in parts]
    in_order = merged(operators, made)
    assert alike(plain(in_order), whole)
    if not ordered:
        shuffle.shuffle(made)
    assert alike(plain(merged(operators, made)), whole)
    cut = shuffle.randrange(len(made) + 1)
    left = merged(operators, [identity_fields(operators, 1), *made[:cut]])
    right = merged(operators, [*made[cut:], identity_fields(operators, 2)])
    assert alike(plain(merged(operators, [right, left])), whole)
    one_by_one = made[0]
    for part in made[1:]:
        one_by_one = merged(operators, [part, one_by_one])
    assert alike(plain(one_by_one), whole)
    assert alike(plain(merged(operators, [in_order])), whole)


@pytest.mark.parametrize(("kind", "column"), CASES)
def test_a_group_without_values_is_the_identity(kind: str, column: str) -> None:
    """However it came about: no rows, rows of nulls, or an empty group beside others."""
    type, _ = COLUMNS[column]
    operators = bound(kind, type)
    nothing = plain(identity_fields(operators, 1))
    assert alike(plain(lifted(operators, type, [])), nothing)
    if kind != "digest":
        assert alike(plain(lifted(operators, type, [(1, 0, None)])), nothing)
    known = {"string": "a", "binary": b"a", "bool": True, "float64": 1.5}
    value = known.get(column, Decimal(3) if column in ("decimal", "wide") else 3)
    if column in PAIRED:
        value = one_pair(column, random.Random(1))
    beside = lifted(operators, type, [(1, 0, value)], groups=2)
    empty = {name: take(field, np.array([1])) for name, field in beside.items()}
    assert alike(plain(empty), nothing)
    assert alike(plain(merged(operators, [identity_fields(operators, 3)])), nothing)


@pytest.mark.parametrize(("kind", "column"), CASES)
def test_many_groups_at_once_are_each_alone(kind: str, column: str) -> None:
    type, _ = COLUMNS[column]
    operators = bound(kind, type)
    source = random.Random(kind + column)
    some: dict[str, Callable[[], Any]] = {
        "string": lambda: source.choice("abc"),
        "binary": lambda: source.choice([b"a", b""]),
        "bool": lambda: source.random() < 0.5,
        "float64": lambda: source.randrange(9) / 4,
        "uint64": lambda: source.randrange(9),
        **dict.fromkeys(("decimal", "wide"), lambda: Decimal(source.randrange(-9, 9))),
    }
    make_value = some.get(column, lambda: source.randrange(-9, 9))
    if column in PAIRED:
        make_value = partial(one_pair, column, source)
    parts = [
        [(source.randrange(5), 10 * p + i, make_value()) for i in range(source.randrange(4))]
        for p in range(30)
    ]
    codes = np.array([source.randrange(5) for _ in parts])
    made = [lifted(operators, type, part) for part in parts]
    rows = joined(operators, made)
    together = merge_fields(rows, Grouping(codes, 6), operators)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.unique(codes))
    sorted_rows = {name: take(field, order) for name, field in rows.items()}
    runs = Grouping(None, len(starts), starts=starts, rows=len(parts))
    by_runs = merge_fields(sorted_rows, runs, operators)
    for place, group in enumerate(np.unique(codes).tolist()):
        mine = [made[part] for part in np.flatnonzero(codes == group)]
        alone = plain(merged(operators, mine))
        pick = {name: take(field, np.array([group])) for name, field in together.items()}
        assert alike(plain(pick), alone)
        pick = {name: take(field, np.array([place])) for name, field in by_runs.items()}
        assert alike(plain(pick), alone)


# What runs: slicers, mergers and an assembler.

VERB = [
    ct.Query(
        "all",
        *(make(f, "v") for f in ("sum", "avg", "product", "variance", "min", "max", "last")),
        ct.count(),
        ct.max_by("s", "v"),
        ct.min_by("v", "s"),
        ct.corr("v", "length(s)"),
        ct.skewness("v"),
        ct.bool_or("v > 0"),
        ct.bit_xor("length(s)"),
        by="k",
        window=ct.tumbling("4us"),
    ),
    ct.Query("sorted", ct.median("v"), ct.mode("s"), by="k", window=ct.sliding("8us", "4us")),
    ct.Query(
        "sets",
        ct.count_distinct("s"),
        ct.approx_count_distinct("s"),
        ct.approx_median("v"),
        window=ct.tumbling("2us"),
    ),
    ct.Query("lists", ct.collect_list("v"), ct.listagg("s", "-"), window=ct.sliding("4us", "2us")),
    ct.Query("sessions", ct.count(), ct.first("s"), by="k", window=ct.session("2us")),
    ct.Query("ranks", ct.sum("v"), by="k", window=ct.count_sliding(3, 2)),
    ct.Query(
        "exact",
        ct.sum("d"),
        ct.avg("d"),
        ct.min("d"),
        ct.median("d"),
        by="k",
        window=ct.sliding("6us", "2us"),
    ),
]
EVENTS = st.lists(
    st.tuples(
        st.integers(-8, 8),
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(-8, 8).map(lambda i: i / 4),
        st.sampled_from(["x", "y", None]),
        st.none() | st.sampled_from([Decimal("12345678901234567.11"), Decimal("-0.01")]),
    ),
    max_size=20,
)


def events_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 5
    return table(
        columns[0],
        k=pa.array(columns[1], pa.string()),
        v=pa.array(columns[2], pa.float64()),
        s=pa.array(columns[3], pa.string()),
        d=pa.array(columns[4], pa.decimal128(20, 2)),
    )


def sliced(data: st.DataObject, plan: ct.Plan) -> list[Partials]:
    return [
        ct.slice(events_of(data.draw(EVENTS)), plan, node=node)
        for node in range(data.draw(st.integers(1, 4)))
    ]


def let_go(merger: Merger, data: st.DataObject, seq: int) -> list[Partials]:
    """What a node passes on at some moment: some rows early, then what a frontier has passed."""
    out: list[Partials] = []
    for id, held in merger.groups.items():
        rows = merger.shelf(id) if held.bound.group.slicing == "arrival" else []
        if len(rows) and data.draw(st.booleans()):
            chosen = data.draw(st.sets(st.integers(0, len(rows) - 1)))
            part = merger.part(id, np.array(sorted(chosen), np.int64), seq)
            out.append(Partials({id: part}))
    out.append(merger.release(data.draw(st.integers(-10, 12)), seq))
    return out


@examples(0.4)
@given(data=st.data())
def test_slices_may_be_cut_finer_and_merged_anywhere(data: st.DataObject) -> None:
    """Nodes cut their events in batches and let go of any part at any time; relays merge what
    comes and let go of it likewise; the root takes all of it in any order."""
    plan = ct.plan(VERB)
    nodes = [data.draw(EVENTS) for _ in range(data.draw(st.integers(1, 3)))]
    bound = BoundPlan(plan, EventRules(), events_of([]).schema)
    climbing: list[Partials] = []
    for node, rows in enumerate(nodes):
        slicer, merger = bound.slicer(str(node)), bound.merger(node)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
        for seq, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
            for sliced in slicer.slice(events_of(rows[low:high]), arrival=rank(node, low)):
                merger.add(sliced)
            climbing += let_go(merger, data, seq)
        climbing.append(merger.take(9))
    for _ in range(data.draw(st.integers(0, 2))):
        relays = [bound.merger() for _ in range(data.draw(st.integers(1, 3)))]
        above: list[Partials] = []
        for partials in data.draw(st.permutations(climbing)):
            relay = data.draw(st.sampled_from(relays))
            relay.absorb(partials)
            above += let_go(relay, data, 0) if data.draw(st.booleans()) else []
        climbing = above + [relay.take() for relay in relays]
    root = bound.assembler()
    for partials in data.draw(st.permutations(climbing)):
        root.absorb(partials)
    found = root.close()
    expected = ct.Engine(VERB)
    for node, rows in enumerate(nodes):  # events of one time rank by node, then by arrival
        assert node < 3
        expected.push(events_of(rows))
    wanted = expected.close()
    for query in VERB:
        keys = list(query.keys)
        assert_same(rows_of(wanted[query.name]), found[query.name], query.name, keys=keys)


def data_rows(partials: Partials) -> list[list[dict[str, Any]]]:
    """The data columns, in any order: not the stamps, nor sketches, whose bytes may differ."""
    shown = []
    for table_of in partials.tables:
        names = [
            n
            for n in table_of.column_names
            if n not in ("#node", "#seq") and not n.endswith(".sketch")
        ]
        shown.append(rows_of(table_of.select(names)))
    return shown


def assert_alike(one: Partials, two: Partials) -> None:
    for left, right in zip(data_rows(one), data_rows(two), strict=True):
        assert len(left) == len(right)

        def order(row: dict[str, Any]) -> str:
            names = [n for n in row if n in ("slice_start", "#selection", "#time", "#arrival")]
            return repr([row[n] for n in names] + [row[n] for n in row if n.startswith("key ")])

        for a, b in zip(sorted(left, key=order), sorted(right, key=order), strict=True):
            assert alike(a, b)


@examples(0.4)
@given(data=st.data())
def test_a_partial_that_comes_twice_counts_once(data: st.DataObject) -> None:
    plan = ct.plan(VERB)
    parts = sliced(data, plan)
    once = ct.merge(parts, plan)
    assert_alike(once, ct.merge(parts + parts, plan))
    assert_alike(once, ct.merge(data.draw(st.permutations(parts + parts)), plan))
    assert_alike(once, ct.merge([once, once], plan))
    assert_alike(once, ct.merge([once], plan))


@examples(0.4)
@given(data=st.data())
def test_merging_in_any_groups_and_order(data: st.DataObject) -> None:
    plan = ct.plan(VERB)
    parts = sliced(data, plan)
    once = ct.merge(parts, plan)
    shuffled = data.draw(st.permutations(parts))
    cut = data.draw(st.integers(0, len(parts)))
    halves = [half for half in (shuffled[:cut], shuffled[cut:]) if half]
    tree = [ct.merge(half, plan, node=10 + n) for n, half in enumerate(halves)]
    assert_alike(once, ct.merge(tree[::-1], plan))
    expected = ct.assemble(once, None, plan)
    found = ct.assemble(ct.merge(tree, plan), None, plan)
    for query in VERB:
        assert_same(rows_of(expected[query.name]), found[query.name], query.name)


def test_merging_merged_partials_loses_nothing_by_default() -> None:
    """Two nodes that merge without naming themselves must not pass for one."""
    plan = ct.plan([ct.Query("q", ct.count().alias("n"), window=ct.tumbling("10us"))])
    one, two = (ct.merge([ct.slice(table([n]), plan, node=n)], plan) for n in (1, 2))
    found = ct.assemble(ct.merge([one, two], plan), None, plan)
    assert found["q"]["n"].to_pylist() == [2]


def test_sketches_stay_within_their_error() -> None:
    """Hundreds of partials, merged in a tree: the rank of the quantile and the distinct count."""
    source = np.random.default_rng(7)
    numbers = source.normal(size=20_000)
    query = ct.Query(
        "q",
        *(ct.approx_quantile("v", q) for q in (0.05, 0.5, 0.95)),
        ct.approx_count_distinct("v").alias("n"),
        window=ct.tumbling("1m"),
    )
    plan = ct.plan([query])
    parts = [
        ct.slice(table(range(100), v=numbers[at : at + 100]), plan, node=at)
        for at in range(0, len(numbers), 100)
    ]
    tree = [ct.merge(parts[i::7], plan, node=10**6 + i) for i in range(7)]
    (row,) = rows_of(ct.assemble(ct.merge(tree, plan), None, plan)["q"])
    for q in (0.05, 0.5, 0.95):
        rank = float((numbers <= row[f"approx_quantile(v, {q})"]).mean())
        assert abs(rank - q) < 0.0265  # KLL's bound at 99 %, doubled for the tree
    assert abs(row["n"] - 20_000) < 0.05 * 20_000


@pytest.mark.parametrize(("rows", "groups"), [(3_000, 2), (3_000, 600), (40, 7)])
def test_products_are_those_of_python_however_many_factors_there_are(
    rows: int, groups: int
) -> None:
    """Of more factors than are multiplied at once, in few groups, in many, and in none."""
    source = np.random.default_rng(rows + groups)
    codes = np.where(source.random(rows) < 0.4, 0, source.integers(0, max(1, groups - 1), rows))
    codes[codes == groups // 2] = 0  # so that some group has no factor
    values = source.normal(size=rows) * 10.0 ** source.integers(-300, 300, rows)
    mantissa, exponent = np.frexp(values)
    made = multiply(mantissa, exponent.astype(np.int64), Grouping(codes, groups))
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    there = Grouping(None, len(starts), starts=starts, rows=rows)
    ordered = multiply(mantissa[order], exponent[order].astype(np.int64), there)
    for group in range(groups):
        product = math.prod(map(Fraction, values[codes == group].tolist()))
        found = Fraction(made["mantissa"][group]) * Fraction(2) ** int(made["exponent"][group])
        assert abs(found / product - 1) < 1e-9
        assert 0.5 <= abs(made["mantissa"][group]) < 1
    for number, group in enumerate(codes[order][starts].tolist()):
        assert same(made["mantissa"][group], ordered["mantissa"][number])
        assert made["exponent"][group] == ordered["exponent"][number]


@pytest.mark.parametrize("odd", [0.0, math.inf, math.nan])
def test_a_product_has_one_form_however_it_was_merged(odd: float) -> None:
    """0 times 8 was 0 * 2 ** 4, and 0 alone 0 * 2 ** 0: equal products were unequal partials."""
    mantissa, exponent = np.frexp(np.array([odd, 8.0]))
    exponent = exponent.astype(np.int64)
    both = multiply(mantissa, exponent, Grouping(np.zeros(2, np.int64), 1))
    assert both["exponent"].tolist() == [0]
    alone = multiply(mantissa[:1], exponent[:1], Grouping(np.zeros(1, np.int64), 1))
    assert np.array_equal(both["mantissa"], alone["mantissa"], equal_nan=True)
