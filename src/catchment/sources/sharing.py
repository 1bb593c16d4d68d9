"""Sharing files out: runs of their parts, of one partition each, about equally heavy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from catchment.sources.base import Split
from catchment.sources.journal import TakenFile


class Part(NamedTuple):
    """Some adjacent groups of a file, or all of it where it has none."""

    path: str
    size: int
    base: int
    """Where its first event stands in the partition."""
    first: int
    rows: list[int] | None
    """The rows of its groups, from the one numbered `first` on."""
    groups: int
    """How many groups the whole file has."""


class FileShare(NamedTuple):
    """Parts of files that one task reads, with these columns."""

    schema: pa.Schema
    parts: list[Part]


class _ReadUnit(NamedTuple):
    file: TakenFile
    group: int
    base: int
    weight: int


def shares(files: list[TakenFile], parallel: int, schema: pa.Schema) -> list[Split]:
    """Splits for about `parallel` tasks; every part is in one of them."""
    units = [unit for file in sorted(files, key=_place) for unit in _units(file)]
    total = max(sum(unit.weight for unit in units), 1)
    splits, before = [], 0
    numbered = []
    for unit in units:
        # By where the middle of it lies, shares come out as even as whole units allow.
        share = (2 * before + unit.weight) * max(parallel, 1) // (2 * total)
        numbered.append(((unit.file.partition, share), unit))
        before += unit.weight
    for (partition, _), group in groupby(numbered, key=lambda pair: pair[0]):
        chosen = [unit for _, unit in group]
        body = FileShare(schema, list(_parts(chosen)))
        weight = sum(unit.weight for unit in chosen)
        splits.append(Split(partition, chosen[0].base, body, weight))
    return splits


def _place(file: TakenFile) -> tuple[str, int]:
    return file.partition, file.base


def _units(file: TakenFile) -> Iterator[_ReadUnit]:
    if not file.groups:
        # A whole file, and also one without rows: it may have been replaced by another.
        yield _ReadUnit(file, 0, file.base, file.size if file.groups is None else 0)
        return
    base = file.base
    for group, rows in enumerate(file.groups):
        yield _ReadUnit(file, group, base, rows)
        base += rows


def _parts(units: list[_ReadUnit]) -> Iterator[Part]:
    for _, of_one in groupby(units, key=lambda unit: unit.file.path):
        run = list(of_one)
        file, first, base, _ = run[0]
        groups = file.groups
        rows = None if groups is None else groups[first : first + len(run)]
        yield Part(file.path, file.size, base, first, rows, len(groups or ()))
