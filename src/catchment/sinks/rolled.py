"""Files that each hold several deliveries: rows wait in hidden files until there are enough.

A delivery of a part first becomes a file of its own in the folder `_waiting`, which readers of
Parquet folders pass over. Batches are divided into ranges of one length. When a delivery is of a
later range, one file with all rows of a range before appears beside that folder, named by the first
and the last batch of the range, and then those that waited are removed. A delivery that comes again
finds that its range is there, or replaces itself among those that wait. What is in a file follows
from the range alone, so two processes that both take themselves for the writer write the same. So
every row is seen once, whenever a process is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from catchment.sinks.place import FilePlace

WAITING = "_waiting"
_END = ".parquet"

ReadFile = Callable[[str], pa.Table]
EncodeFile = Callable[[pa.Table], pa.Buffer]


def file_name(batch: int, part: int) -> str:
    """The file of one delivery."""
    return f"{batch:09d}-{part}{_END}"


def span_of(name: str) -> tuple[int, int, int] | None:
    """The part, the first and the last batch of a file; None where it is none of ours."""
    batches, _, part = name.removesuffix(_END).rpartition("-")
    first, _, last = batches.partition("_")
    numbers = (part, first, last or first)
    if not _is_file(name) or not all(number.isdecimal() for number in numbers):
        return None
    return int(part), int(first), int(last or first)


class RolledFiles:
    """The files of one folder, of all parts."""

    def __init__(self, place: FilePlace, folder: str, read: ReadFile, encode: EncodeFile) -> None:
        """`folder` is below the place; empty: the place itself."""
        self._place, self._read, self._encode = place, read, encode
        self._folder = f"{folder}/" if folder else ""
        self._waiting = f"{self._folder}{WAITING}"

    def add(self, batch: int, part: int, table: pa.Table, most: int) -> None:
        """Takes a delivery; ranges are of so many batches, and those before its own are over."""
        if self.holds(batch, part):
            return
        self._place.write(f"{self._waiting}/{file_name(batch, part)}", self._encode(table))
        waiting = self._of_parts().get(part, [])
        for begin, names in groupby(waiting, lambda name: _batch(name) // most * most):
            if begin + most <= batch:
                self._roll(part, list(names), begin, begin + most - 1)

    def holds(self, batch: int, part: int) -> bool:
        """Whether a delivery waits no more: it is in a file that readers see."""
        return _Seen.of(self._listed()).holds(part, batch)

    def roll(self) -> None:
        """Makes one file of all that wait, for each part: nothing more will come."""
        for part, waiting in self._of_parts().items():
            self._roll(part, waiting, _batch(waiting[0]), _batch(waiting[-1]))

    def names(self) -> list[str]:
        """The files that hold all rows, each once, below the place."""
        # What goes from there meanwhile is in a file that is listed next.
        waiting = self._place.names(self._waiting)[0]
        listed = [name for name in self._listed() if _is_file(name)]
        seen = _Seen.of(listed)
        return [
            *(f"{self._folder}{name}" for name in listed),
            *(
                f"{self._waiting}/{name}"
                for part, batch, name in _spans(waiting)
                if not seen.holds(part, batch)
            ),
        ]

    def _roll(self, part: int, waiting: list[str], first: int, last: int) -> None:
        paths = [f"{self._waiting}/{name}" for name in waiting]
        tables = [self._read(path) for path in paths]
        joined = pa.concat_tables(tables, promote_options="permissive")
        joined = joined.replace_schema_metadata(tables[-1].schema.metadata)
        name = f"{first:09d}_{last:09d}-{part}{_END}"
        self._place.write(f"{self._folder}{name}", self._encode(joined))
        for path in paths:
            self._place.remove(path)

    def _of_parts(self) -> dict[int, list[str]]:
        """Files that wait, by part, in the order of batches; those that are in another already are
        removed: a process was killed before it could."""
        # In this order: what another process takes from there meanwhile is seen in its file.
        waiting = _spans(self._place.names(self._waiting)[0])
        seen = _Seen.of(self._listed())
        found: dict[int, list[str]] = {}
        for part, batch, name in waiting:
            if seen.holds(part, batch):
                self._place.remove(f"{self._waiting}/{name}")
            else:
                found.setdefault(part, []).append(name)
        return found

    def _listed(self) -> list[str]:
        return self._place.names(self._folder.rstrip("/"))[0]


@dataclass(frozen=True)
class _Seen:
    """What is in files that readers see."""

    single: frozenset[tuple[int, int]]
    """Parts and batches of files of one delivery."""
    last: Mapping[int, int]
    """The last batch of a part that is in a file of several."""

    @classmethod
    def of(cls, names: Iterable[str]) -> _Seen:
        single, last = set(), dict[int, int]()
        for name in names:
            span = span_of(name)
            if span is not None and "_" in name:
                last[span[0]] = max(last.get(span[0], -1), span[2])
            elif span is not None:
                single.add(span[:2])
        return cls(frozenset(single), last)

    def holds(self, part: int, batch: int) -> bool:
        return batch <= self.last.get(part, -1) or (part, batch) in self.single


def _is_file(name: str) -> bool:
    return name.endswith(_END)


def _batch(name: str) -> int:
    span = span_of(name)
    assert span is not None
    return span[1]


def _spans(names: Iterable[str]) -> list[tuple[int, int, str]]:
    """Part, batch and name of the files that are ours, in order."""
    found = [(span_of(name), name) for name in names]
    return sorted((span[0], span[1], name) for span, name in found if span is not None)
