"""The compiled loops do what the NumPy code beside them does: the same bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from benchmarks import mix_random
from benchmarks.events import drive
from catchment.errors import StateError
from catchment.native import Kernels, compiled, kernels, library, without_kernels
from catchment.native.build import build
from catchment.operators import Computed, Grouping, Input, OperatorRef
from catchment.operators.coupons import coupons
from catchment.operators.grouping import sort_rows
from catchment.operators.hll import _sketches, _summed
from catchment.operators.kll import Kll, KllWhole, quantiles
from catchment.operators.murmur import hash_numbers

ODD = [0.0, -0.0, 1.0, -1.0, np.nan, -np.nan, np.inf, -np.inf, 5e-324, 1e308, -1e308, 1e-308]
WHOLE = [0, 1, -1, 2**63 - 1, -(2**63), 2**62]
ROWS = 6000


@pytest.fixture(scope="module", autouse=True)
def loops_are_compiled() -> None:
    said = build()
    if compiled() is None:
        pytest.skip(said)


def both(make: Any) -> tuple[Any, Any]:
    """What NumPy makes, and what the compiled loops make."""
    with without_kernels():
        one = make()
    return one, make()


def bits(values: Any) -> Any:
    """An array as what it is in memory; all NaNs are one."""
    values = np.array(values)
    if values.dtype == np.float64:
        values[np.isnan(values)] = np.nan
        return (values + 0.0).view(np.uint64).tolist()
    return values.tolist()


def drawn(seed: int, groups: int, share: float) -> tuple[Any, Any, Any]:
    """Doubles and whole numbers, some of them odd ones, and codes of groups, some without rows."""
    random = np.random.default_rng(seed)
    doubles = np.round(random.normal(size=ROWS) * 10, 1)
    whole = random.integers(-50, 50, ROWS)
    odd = random.random(ROWS) < share
    doubles[odd] = random.choice(ODD, int(odd.sum()))
    whole[odd] = random.choice(WHOLE, int(odd.sum()))
    return doubles, whole, random.integers(0, max(1, groups - groups // 3), ROWS)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 40, 5000]), st.sampled_from([0, 0.1, 0.9]))
def test_reductions(seed: int, groups: int, share: float) -> None:
    doubles, whole, codes = drawn(seed, groups, share)
    center = np.random.default_rng(seed).normal(size=groups)

    def reduced() -> list[Any]:
        made = Grouping(codes, groups)
        with np.errstate(all="ignore"):
            return [
                made.count,
                *(made.min(doubles), made.max(doubles), made.min(whole), made.max(whole)),
                *(part for end in (made.first, made.last) for part in end(whole)),
                *(made.differences(doubles, center), made.squares(doubles, center)),
                *made.powers(doubles, center),
            ]

    for one, other in zip(*both(reduced), strict=True):
        assert one.dtype == other.dtype
        assert bits(one) == bits(other)


@given(st.integers(0, 2**32), st.sampled_from([1, 7, 2**20]), st.booleans(), st.booleans())
def test_orders(seed: int, keys: int, shuffled: bool, some: bool) -> None:
    """Of times and keys, by words of both; also where one of them is the same in all rows."""
    random = np.random.default_rng(seed)
    times = np.arange(ROWS) * (2**20 if shuffled else 0) - 2**33
    times = random.permutation(times) if shuffled else times
    key = random.integers(-3, keys, ROWS)
    keep = random.random(ROWS) < 0.7 if some else None
    arrivals = np.arange(ROWS)

    def in_order() -> list[Any]:
        rows, columns = sort_rows(arrivals, times, key, keep=keep)
        return [rows, *columns, *sort_rows(arrivals, key, keep=keep)[1]]

    one, other = both(in_order)
    assert [part.tolist() for part in one] == [part.tolist() for part in other]
    kept = np.flatnonzero(keep) if some else arrivals
    wanted = kept[np.lexsort((times[kept], key[kept]))]
    assert other[0].tolist() == wanted.tolist()


@pytest.mark.parametrize("groups", [2, 700])
def test_infinities_and_groups_of_nan_alone(groups: int) -> None:
    """Of which the least value is infinity, NaN, or a number beside them."""
    codes = np.repeat([0, 1], [ROWS, 1])
    for values in ([np.inf], [np.nan], [np.inf, np.nan], [np.inf, 3.0], [np.nan, 3.0]):
        column = np.append(np.resize(values, ROWS), 1.0)
        one, other = both(lambda column=column: Grouping(codes, groups).min(column))
        assert bits(one) == bits(other)


@given(st.integers(0, 2**32), st.sampled_from([0, 0.1]), st.booleans())
def test_hashes(seed: int, share: float, unsigned: bool) -> None:
    doubles, whole, _ = drawn(seed, 1, share)
    whole = whole * 2**40 if not unsigned else whole.view(np.uint64) * np.uint64(2**40 + 1)
    for values in (doubles, whole, values_with_many_zeros()):
        one, other = both(lambda values=values: coupons(values, None))
        assert bits(one[0]) == bits(other[0])
        assert (one[1] is None and other[1] is None) or bits(one[1]) == bits(other[1])


def values_with_many_zeros() -> Any:
    """Whole numbers whose hashes begin with many zeros, as few do."""
    every = np.arange(1_000_000)
    high = hash_numbers(every)[1]
    return every[np.argsort(high)[:ROWS]] * 1


@pytest.mark.parametrize("most", [8, 31, 32, 63])
def test_registers(most: int) -> None:
    """Also numbers so large that they are summed apart."""
    random = np.random.default_rng(most)
    numbers = random.integers(1, most + 1, ROWS).astype(np.uint32)
    many = numbers << np.uint32(26) | random.integers(0, 1 << 26, ROWS).astype(np.uint32)
    codes = random.integers(0, 3, ROWS)
    one, other = both(lambda: _sketches(many, Grouping(codes, 4)).tolist())
    assert one == other
    tables = random.integers(0, most + 1, (70, 4096)).astype(np.uint8)
    for one, other in zip(*both(lambda: _summed(tables)), strict=True):
        assert bits(one) == bits(other)


def kll_of(whole: bool) -> Kll:
    if whole:
        return KllWhole(OperatorRef("kll_whole", "v"), pa.int64())
    return Kll(OperatorRef("kll", "v"), pa.float64())


def sketched(values: Any, codes: Any, groups: int, whole: bool) -> Any:
    """The KLL sketch of each group."""
    operator = kll_of(whole)
    grouping = Grouping(codes, groups)
    made = operator.lift(
        Input(values, grouping, lambda: codes, lambda rows=None: codes), Computed({}, {})
    )
    return made["sketch"]


def united(sketches: Any, codes: Any, groups: int, whole: bool) -> Any:
    """The KLL sketch of all sketches of each group."""
    operator = kll_of(whole)
    rows = Computed({operator.ref.id: operator}, {operator.ref.id: {"sketch": sketches}})
    return operator.merge(rows, Grouping(codes, groups), Computed({}, {}))["sketch"]


@given(st.integers(0, 2**32), st.sampled_from(["few", "many", "odd", "whole"]))
def test_kll_sketches(seed: int, kind: str) -> None:
    """Of one value up to many more than are kept, and their unions, once and again."""
    random = np.random.default_rng(seed)
    sizes = random.choice([0, 1, 2, 150, 199, 200, 201, 900, 3000], random.integers(1, 12))
    codes = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    doubles, whole = np.round(random.normal(size=len(codes)), 1 if kind == "few" else 9), False
    if kind == "odd":
        doubles = random.choice(ODD, len(codes))
    values = doubles
    if kind == "whole":
        values, whole = random.choice([*WHOLE, *range(40)], len(codes)), True
    some = random.integers(0, 3, len(sizes))

    def made() -> list[Any]:
        lifted = sketched(values, codes, len(sizes), whole)
        once = united(lifted, some, 3, whole)
        again = united(np.append(once, lifted), np.append([0, 0, 1], some), 3, whole)
        found = [lifted.tolist(), once.tolist(), again.tolist()]
        every = np.concatenate([lifted, once, again])
        for q in () if whole else (0, 0.01, 0.5, 0.99, 1):
            found.append(bits(quantiles(every, q)))
        return found

    one, other = both(made)
    assert one == other


def test_kll_sketches_with_values_out_of_order() -> None:
    """As others may write those of the lowest level."""
    values = np.random.default_rng(1).normal(size=150)  # so few that there is one level
    whole = sketched(values, np.zeros(150, np.int64), 1, False)[0]
    words = np.frombuffer(whole, np.uint32).copy()
    low = words[-300:].view(np.float64)
    low[:] = low[::-1].copy()
    turned = np.array([words.tobytes(), whole], object)
    codes = np.zeros(2, np.int64)
    one, other = both(lambda: united(turned, codes, 1, False).tolist())
    assert turned[0] != turned[1]
    assert one == other
    for q in (0.2, 0.8):
        assert bits(quantiles(turned[:1], q)) == bits(quantiles(turned[1:], q))


@given(st.integers(0, 2**32))
def test_kll_sketches_that_are_damaged_are_refused_alike(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.choice([1, 2, 300, 3000]))
    good = sketched(random.normal(size=size), np.zeros(size, np.int64), 1, False)[0]
    bad = bytearray(good[: 4 * random.integers(0, len(good) // 4 + 1)])
    for place in random.integers(0, max(1, min(len(bad), 40)), 2).tolist():
        bad[place : place + 1] = bytes([random.integers(256)])
    parts = np.array([bytes(bad), good], object)

    def told() -> Any:
        found = []
        for make in (
            lambda: united(parts, np.zeros(2, np.int64), 1, False).tolist(),
            lambda: bits(quantiles(parts[:1], 0.5)),
        ):
            try:
                found.append(make())
            except StateError as error:
                found.append(str(error))
        return found

    one, other = both(told)
    assert one == other


@pytest.mark.parametrize("values", [[1e300, 1e300, 1e-300, -1e-320], [0.1], [-2.0, 0.0], ODD])
def test_products(values: list[float]) -> None:
    """They are multiplied in another order: to 1e-12, and neither too large nor too small."""
    column = np.resize(values, ROWS)
    named = ct.product("v").alias("p"), ct.geometric_mean("abs(v)").alias("m")
    query = ct.Query("q", *named, window=ct.tumbling("1s"))

    def products() -> list[list[float]]:
        engine = ct.Engine([query])
        times = (np.arange(ROWS) * 1000).astype("datetime64[us]")
        engine.push({"ts": times, "v": column})
        results = engine.close()["q"]
        return [results[name].to_pylist() for name in ("p", "m")]

    for one, other in zip(*both(products), strict=True):
        assert len(one) == 6
        assert one == pytest.approx(other, rel=1e-12, nan_ok=True)


def test_codes_out_of_range_are_refused_before_memory_is_touched() -> None:
    for codes in (np.full(ROWS, 7), np.full(ROWS, -8)):
        groups = Grouping(codes, 7)
        assert groups.kernels is None
        with pytest.raises(IndexError):
            groups.max(np.zeros(ROWS))
    assert Grouping(np.zeros(ROWS, np.int32), 1).kernels is None
    lacking = Grouping(np.zeros(ROWS, np.int64), 1)
    with pytest.raises((IndexError, ValueError)):
        lacking.powers(np.zeros(ROWS - 5), np.zeros(1))


def test_a_random_mix_gives_the_same_results() -> None:
    """Whole numbers and sketches to the bit, doubles to 1e-9."""
    queries = mix_random.mix(Random(7), 40)
    load = mix_random.sample(20_000, 4_000)

    def results() -> list[dict[str, Any]]:
        engine = ct.Engine(queries, schema=load.steps[0].table.schema)
        steps = []
        for table, frontier in load.steps:
            engine.push(table)
            steps.append(
                {name: some.to_pydict() for name, some in engine.advance(frontier).items()}
            )
        return steps

    one, other = both(results)
    assert sum(map(len, one)) > 30
    for some, more in zip(one, other, strict=True):
        assert some.keys() == more.keys()
        for name, columns in some.items():
            for column, values in columns.items():
                wanted = more[name][column]
                if any(isinstance(value, float) for value in values):
                    wanted = pytest.approx(wanted, rel=1e-9, nan_ok=True)
                assert values == wanted


def test_few_rows_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels(library.LEAST_ROWS - 1) is None
    assert isinstance(kernels(library.LEAST_ROWS), Kernels)
    with without_kernels():
        assert kernels(library.LEAST_ROWS) is None
    assert kernels(library.LEAST_ROWS) is not None
    assert kernels(1, least=1) is not None


def test_the_environment_turns_them_off() -> None:
    code = "from catchment.native import compiled; print(compiled())"
    for value, wanted in (("0", "None"), ("1", "Kernels")):
        told = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": ":".join(sys.path), library.SWITCH: value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert wanted in told.stdout


class TestBuilding:
    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A package where nothing is compiled yet."""
        source = tmp_path / "kernels.c"
        source.write_bytes(library.SOURCE.read_bytes())
        monkeypatch.setattr(library, "SOURCE", source)
        monkeypatch.setattr("catchment.native.build.SOURCE", source)
        return source

    def test_it_is_compiled_once(self, place: Path) -> None:
        assert build() == "compiled loops for this machine"
        assert build() == "compiled loops are there already"
        path = library.library_path()
        assert path is not None and [path] == list(place.parent.glob("__pycache__/*"))

    def test_another_source_is_another_library(self, place: Path) -> None:
        before = library.library_path()
        place.write_text("int other;")
        assert library.library_path() != before

    def test_without_a_compiler_numpy_does_it(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CC", "no-such-compiler -O2")
        assert build() == (
            "no C compiler (no-such-compiler): NumPy alone is used, which takes longer"
        )
        assert not list(place.parent.glob("__pycache__/*"))

    def test_a_compiler_that_fails_leaves_nothing(self, place: Path) -> None:
        place.write_text("this is no C")
        assert "the C compiler failed" in build()
        assert not list(place.parent.glob("__pycache__/*"))

    def test_a_library_of_another_machine_is_left_alone(self, place: Path) -> None:
        path = library.library_path()
        assert path is not None
        path.parent.mkdir()
        path.write_bytes(b"not a library")
        compiled.cache_clear()
        try:
            assert compiled() is None
        finally:
            library.SOURCE = Path(library.__file__).with_name("kernels.c")
            compiled.cache_clear()

    def test_a_package_in_an_archive_has_none(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(library, "SOURCE", place / "kernels.c")
        assert library.library_path() is None
        assert build() == "the package is in an archive: NumPy alone is used"


def test_an_engine_that_is_driven_uses_them() -> None:
    """So that no test above compares NumPy with itself."""
    load = mix_random.sample(10_000, 10_000)
    called = []
    loops = compiled()
    assert loops is not None
    least = loops.least
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "least", lambda *given: called.append(1) or least(*given))
        query = ct.Query("q", ct.min("v"), by="player", window=ct.tumbling("1s"))
        drive(ct.Engine([query]), load.steps)
    assert called
