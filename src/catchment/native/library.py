"""The compiled loops as functions of NumPy arrays."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).with_name("kernels.c")
SWITCH = "CATCHMENT_NATIVE"
"""The variable of the environment that, where it is 0, leaves the compiled loops unused."""
LEAST_ROWS = 4096
"""Rows from which a call pays: below, to find the addresses of arrays takes longer than NumPy."""
_ARRAYS = {
    "coupons_of_words": 2,
    "coupons_of_doubles": 2,
    "raise_registers": 3,
    "sum_registers": 3,
    "count_rows": 2,
    "least_doubles": 3,
    "greatest_doubles": 3,
    "least_words": 3,
    "greatest_words": 3,
    "first_rows": 3,
    "last_rows": 3,
    "add_differences": 4,
    "add_squares": 4,
    "add_powers": 4,
    "multiply_doubles": 4,
    "count_falls": 2,
    "find_ends": 2,
    "pack_words": 4,
    "unpack_words": 5,
    "sketch_kll": 7,
    "unite_kll": 9,
    "find_quantiles": 8,
}
"""The loops, and how many arrays each is given."""
_OUTPUTS = {
    "sum_registers": 2,
    "multiply_doubles": 2,
    "unpack_words": 3,
    "sketch_kll": 3,
    "unite_kll": 3,
    "find_quantiles": 3,
}
"""How many of the arrays, the last ones, are written, where that is not one."""

Doubles = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
SketchWords = npt.NDArray[np.uint32]
Sketches = tuple[SketchWords, Int64s] | None

_KLL_ARRAYS = 5
"""Arrays that a sketch of so many values needs while it is made."""
_KLL_PREAMBLE = 5 + 61 + 4
"""Words of a sketch besides its values, at most."""


class Kernels:
    """The loops of a compiled library. Codes of groups must be in range: nobody checks them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._loops = {name: getattr(library, name) for name in _ARRAYS}
        for name, arrays in _ARRAYS.items():
            inputs = arrays - _OUTPUTS.get(name, 1)
            places = [ctypes.c_void_p] * arrays
            self._loops[name].argtypes = [*places[:inputs], ctypes.c_int64, *places[inputs:]]
            self._loops[name].restype = None

    def _run(self, name: str, rows: int, inputs: tuple[Any, ...], *outputs: Any) -> None:
        inputs = tuple(np.ascontiguousarray(one) for one in inputs)
        self._loops[name](*map(_address, inputs), rows, *map(_address, outputs))

    def coupons(self, values: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """The coupons of numbers (int64, uint64 or float64), as of `operators/coupons.py`."""
        out = np.empty(len(values), np.uint32)
        doubles = values.dtype == np.float64
        name = "coupons_of_doubles" if doubles else "coupons_of_words"
        self._run(name, len(values), (values,), out)
        return out

    def raise_registers(
        self, coupons: npt.NDArray[np.uint32], codes: Int64s, registers: npt.NDArray[np.uint8]
    ) -> None:
        """Raises the registers of the groups, in a table each, to the numbers of coupons."""
        self._run("raise_registers", len(coupons), (coupons, codes), registers)

    def sum_registers(self, registers: npt.NDArray[np.uint8]) -> tuple[Doubles, Int64s]:
        """Of each table, the sums of 2**-register, small ones and others; how many are filled."""
        sums, filled = np.empty((len(registers), 2)), np.empty(len(registers), np.int64)
        self._run("sum_registers", len(registers), (registers,), sums, filled)
        return sums, filled

    def count(self, codes: Int64s, groups: int) -> Int64s:
        """Rows by group."""
        out = np.zeros(groups, np.int64)
        self._run("count_rows", len(codes), (codes,), out)
        return out

    def least(
        self, values: npt.NDArray[Any], codes: Int64s, groups: int, none: Any
    ) -> npt.NDArray[Any]:
        """The least value by group (int64 or float64); `none` of a group without rows."""
        out: npt.NDArray[Any] = np.full(groups, none, values.dtype)
        name = "least_doubles" if values.dtype == np.float64 else "least_words"
        self._run(name, len(values), (values, codes), out)
        return out

    def greatest(
        self, values: npt.NDArray[Any], codes: Int64s, groups: int, none: Any
    ) -> npt.NDArray[Any]:
        """The greatest value by group (int64 or float64); `none` of a group without rows."""
        out: npt.NDArray[Any] = np.full(groups, none, values.dtype)
        name = "greatest_doubles" if values.dtype == np.float64 else "greatest_words"
        self._run(name, len(values), (values, codes), out)
        return out

    def end_rows(self, times: Int64s, codes: Int64s, groups: int, *, latest: bool) -> Int64s:
        """The row of least or greatest time by group; -1 of a group without rows."""
        out = np.full(groups, -1, np.int64)
        self._run("last_rows" if latest else "first_rows", len(times), (times, codes), out)
        return out

    def differences(self, values: Doubles, codes: Int64s, centers: Doubles) -> Doubles:
        """The sum of the differences from a center by group."""
        out = np.zeros(len(centers))
        self._run("add_differences", len(values), (values, codes, centers), out)
        return out

    def squares(self, values: Doubles, codes: Int64s, centers: Doubles) -> Doubles:
        """The sum of the squares of the differences from a center by group."""
        out = np.zeros(len(centers))
        self._run("add_squares", len(values), (values, codes, centers), out)
        return out

    def powers(self, values: Doubles, codes: Int64s, centers: Doubles) -> Doubles:
        """Four rows: sums of the first to fourth powers of differences from a center, by group."""
        out = np.zeros((len(centers), 4))
        self._run("add_powers", len(values), (values, codes, centers), out)
        return np.ascontiguousarray(out.T)

    def products(self, values: Doubles, codes: Int64s, groups: int) -> tuple[Doubles, Int64s]:
        """The product by group, as mantissa and exponent."""
        mantissas, exponents = np.ones(groups), np.zeros(groups, np.int64)
        self._run("multiply_doubles", len(values), (values, codes), mantissas, exponents)
        return mantissas, exponents

    def falls(self, values: Int64s) -> int:
        """How often a value is less than the one before it."""
        out = np.empty(1, np.int64)
        self._run("count_falls", len(values), (values,), out)
        return int(out[0])

    def ends(self, values: Int64s) -> tuple[int, int]:
        """The least and the greatest value."""
        out = np.empty(2, np.int64)
        self._run("find_ends", len(values), (values,), out)
        return int(out[0]), int(out[1])

    def pack(self, first: Int64s, second: Int64s, layout: Int64s) -> Int64s:
        """Int64s of two columns and the number of each row: `layout` has the least value and the
        first bit of each column."""
        out = np.empty(len(first), np.int64)
        self._run("pack_words", len(first), (first, second, layout), out)
        return out

    def unpack(self, words: Int64s, layout: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The rows and the two columns of such words."""
        rows, first, second = (np.empty(len(words), np.int64) for _ in range(3))
        self._run("unpack_words", len(words), (words, layout), rows, first, second)
        return rows, first, second

    def sketch_kll(self, values: npt.NDArray[Any], offsets: Int64s, room: Int64s) -> Sketches:
        """The words of KLL sketches of runs of values (int64 or float64), and where each begins;
        None where it cannot be done. No run is empty, and each is in order."""
        lengths = np.diff(offsets)
        most = int(lengths.max(initial=0))
        inputs = values, offsets, _layout(values.dtype == np.float64, most), room
        return self._sketches("sketch_kll", len(lengths), inputs, most, 2 * int(offsets[-1]))

    def unite_kll(
        self,
        words: SketchWords,
        offsets: Int64s,
        order: Int64s,
        starts: Int64s,
        room: Int64s,
        doubles: bool,
    ) -> Sketches:
        """The words of the unions of KLL sketches, and where each begins; None where one of them is
        damaged. `starts` says where each union begins in an order of the sketches, and where the
        last one ends."""
        ends = np.append(0, np.cumsum(np.diff(offsets).take(order))).take(starts)
        most = int(np.diff(ends).max(initial=0)) // 2
        inputs = words, offsets, order, starts, _layout(doubles, most), room
        return self._sketches("unite_kll", len(starts) - 1, inputs, most, int(ends[-1]))

    def _sketches(
        self, name: str, sketches: int, inputs: tuple[Any, ...], most: int, values: int
    ) -> Sketches:
        scratch = np.empty(_KLL_ARRAYS * most, np.int64)
        out = np.empty(_KLL_PREAMBLE * sketches + values, np.uint32)
        ends = np.empty(sketches + 1, np.int64)
        self._run(name, sketches, inputs, scratch, out, ends)
        return None if ends[0] < 0 else (out[: ends[-1]], ends)

    def quantiles(
        self, words: SketchWords, offsets: Int64s, share: float, room: Int64s
    ) -> Doubles | None:
        """The value below which a share of the values lies, of each KLL sketch of doubles; None
        where one of them is damaged."""
        sketches = len(offsets) - 1
        most = int(np.diff(offsets).max(initial=0)) // 2
        inputs = words, offsets, np.array([share], np.float64), _layout(True, most), room
        scratch, out = np.empty(_KLL_ARRAYS * most, np.int64), np.empty(sketches)
        failed = np.empty(1, np.int64)
        self._run("find_quantiles", sketches, inputs, scratch, out, failed)
        return None if failed[0] else out


def _layout(doubles: bool, most: int) -> Int64s:
    """What is turned over in negative numbers so that doubles are in order as whole numbers, and
    how many values a sketch has at most."""
    return np.array([np.iinfo(np.int64).max if doubles else 0, most], np.int64)


def _address(array: npt.NDArray[Any]) -> int:
    place: int = array.__array_interface__["data"][0]
    return place


def library_path() -> Path | None:
    """Where the library of this source belongs: beside the compiled Python, under a name that tells
    source and platform. None where the package is not a folder."""
    try:
        source = SOURCE.read_bytes()
    except OSError:  # as in an archive
        return None
    digest = hashlib.sha256(source).hexdigest()[:16]
    return (
        SOURCE.parent / "__pycache__" / f"kernels-{sys.platform}-{platform.machine()}-{digest}.so"
    )


@cache
def compiled() -> Kernels | None:
    """The compiled loops, where this process has them."""
    if os.environ.get(SWITCH) == "0":
        return None
    path = library_path()
    try:
        return Kernels(ctypes.CDLL(str(path))) if path is not None and path.exists() else None
    except (OSError, AttributeError):  # of another machine, or half written
        return None


_off = False


def kernels(rows: int, least: int = LEAST_ROWS) -> Kernels | None:
    """The compiled loops for so many rows; None where NumPy is to do it."""
    return None if rows < least or _off else compiled()


@contextmanager
def without_kernels() -> Iterator[None]:
    """NumPy alone, to compare the two."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before
