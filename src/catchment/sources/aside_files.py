"""Rows set aside, kept as Parquet files: by kind, and by the batch or step that set them aside.

    aside/index.json                         which files count, and how many rows were removed
    aside/late/000000007.parquet             late rows of batch 7
    aside/bad/000000007-0002.parquet         more bad rows of it, written before it was over
    aside/bad/000000000-to-000000006.parquet rows of older batches, joined

A batch that runs again writes the same files again. Small files of older batches are joined, and
the oldest are removed once all together take more bytes than allowed: so neither bytes nor files
grow for ever. What was removed is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from msgspec import Struct

from catchment.arrow_memory import arrow_input
from catchment.durable.folder import Folder
from catchment.engine.set_aside import joined
from catchment.errors import StateError
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.sources.aside import reason_of

ASIDE_DISK_BYTES = 1 << 30
"""Bytes of files of rows set aside that are kept, unless another limit is given."""
KINDS = ("bad", "late", "unread")
"""Rows without a usable time, late ones, and what could not be read as rows."""
SMALL = 8 << 20
"""Files of fewer bytes are joined with others."""
APART = 64
"""Small files of a kind that are kept apart."""
_INDEX = "index.json"
_TO = "-to-"


class AsideFile(NamedTuple):
    """A file of rows set aside."""

    kind: str
    name: str
    rows: int
    nbytes: int

    @property
    def number(self) -> int:
        """The number of the first batch or step whose rows the file holds."""
        return int(self.name[:9])

    @property
    def joined(self) -> bool:
        return _TO in self.name


class AsideIndex(Struct, frozen=True):
    """Which files count."""

    files: list[AsideFile] = []
    removed: int = 0
    """Rows of files that were removed to make room."""
    gone: list[AsideFile] = []
    """Files that were about to be deleted."""


def encoded(rows: pa.Table) -> bytes:
    """Rows as the bytes of a Parquet file."""
    import pyarrow.parquet as pq  # late: a node that sets nothing aside does without

    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd")
    return bytes(buffer.getvalue().to_pybytes())


@dataclass(frozen=True)
class AsidePlace:
    """Where a task writes the rows that it sets aside and does not hand on."""

    home: Folder
    number: int
    """The number of the batch."""
    memory: int
    """Bytes that a task may hold of them, and that it may write."""
    disk: int

    def spill(self, split: int) -> Spilling:
        return Spilling(self, split)


class Spilling:
    """Writes rows of one split, as long as there is room; `written` is what it wrote."""

    def __init__(self, place: AsidePlace, split: int) -> None:
        self.place, self.split = place, split
        self.written: list[AsideFile] = []
        self._room = place.disk

    def __call__(self, kind: str, rows: pa.Table) -> bool:
        if self._room <= 0:
            return False
        place, part = self.place, 1 + len(self.written)
        kept = spilled(place.home, place.number, self.split, part, kind, rows)
        self.written.append(kept)
        self._room -= kept.nbytes
        return True


def spilled(
    home: Folder, number: int, split: int, part: int, kind: str, rows: pa.Table
) -> AsideFile:
    """Writes rows of a split before its batch is over; `AsideFiles.adopt` makes them count."""
    name, data = f"{number:09d}-{split:04d}-{part:04d}.parquet", encoded(rows)
    home.sub(kind).write(name, data)
    return AsideFile(kind, name, rows.num_rows, len(data))


class AsideFiles:
    """The files in one folder. One process writes; batches or steps come in order."""

    def __init__(self, home: Folder, limit: int = ASIDE_DISK_BYTES) -> None:
        self.home, self.limit = home, limit
        self.removed = 0
        """Rows of files that were removed to make room."""
        self._files: dict[tuple[str, str], AsideFile] = {}
        self._opened = self._changed = False
        self._fresh: set[tuple[str, str]] = set()

    def begin(self) -> None:
        """A step is begun anew: what it wrote before does not count unless it is written again."""
        self._fresh = set()

    def write(self, number: int, part: int, kind: str, rows: pa.Table) -> None:
        """Writes rows of a batch or step; the same part again replaces what it had written."""
        name = f"{number:09d}.parquet" if part == 0 else f"{number:09d}-{part:04d}.parquet"
        data = encoded(rows)
        self.home.sub(kind).write(name, data)
        self.adopt(AsideFile(kind, name, rows.num_rows, len(data)))

    def keep(
        self, number: int, rows: Mapping[str, list[pa.Table]], spilled: list[AsideFile]
    ) -> None:
        """All that a batch set aside: rows by kind, and files that its tasks have written."""
        for kind, tables in rows.items():
            self.write(number, 0, kind, joined(tables))
        for kept in spilled:
            self.adopt(kept)
        self.end(number)

    def adopt(self, kept: AsideFile) -> None:
        """Counts a file that was written elsewhere."""
        self._open()
        self._files[kept.kind, kept.name] = kept
        self._fresh.add((kept.kind, kept.name))
        self._changed = True

    def end(self, number: int) -> None:
        """All rows of a batch or step are written: tidies up, and makes what was written count."""
        self._open()
        self._forget_unfinished(number)
        self._fresh = set()
        if self._changed:
            gone = [*self._too_many(), *self._joined_before(number)]
            self._save(gone)
            self._delete(gone)
            self._changed = False

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def capacity(self) -> Capacity:
        self._open()
        then = "the oldest files are removed, and their rows counted as dropped"
        return Capacity("rows set aside, on disk", self.nbytes, self.limit, "bytes", then)

    # -- tidying ----------------------------------------------------------------------------------

    def _too_many(self) -> list[AsideFile]:
        """The oldest files, as long as all take more than allowed; the newest one stays."""
        gone = []
        by_age = sorted(self._files.values(), key=lambda kept: kept.name)
        for kept in by_age[:-1]:
            if self.nbytes <= self.limit:
                break
            del self._files[kept.kind, kept.name]
            self.removed += kept.rows
            gone.append(kept)
        return gone

    def _joined_before(self, number: int) -> list[AsideFile]:
        """Joins small files of batches before one, where there are many; those now needless."""
        gone: list[AsideFile] = []
        for kind in KINDS:
            small = [
                kept
                for kept in self._files.values()
                if kept.kind == kind and kept.nbytes < SMALL and kept.number < number
            ]
            if len(small) > APART:
                gone += self._join(kind, sorted(small, key=lambda kept: kept.name))
        return gone

    def _join(self, kind: str, files: list[AsideFile]) -> list[AsideFile]:
        folder = self.home.sub(kind)
        try:
            tables = [_decoded(folder.read(kept.name) or b"") for kept in files]
            whole = pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowException, OSError):
            return []  # rows of different columns stay apart
        last = max(int(kept.name.split(_TO)[-1][:9]) for kept in files)
        name, data = f"{files[0].number:09d}{_TO}{last:09d}.parquet", encoded(whole)
        folder.write(name, data)
        for kept in files:
            del self._files[kind, kept.name]
        self._files[kind, name] = AsideFile(kind, name, whole.num_rows, len(data))
        return [kept for kept in files if kept.name != name]

    def _delete(self, files: list[AsideFile]) -> None:
        for kept in files:
            self.home.sub(kept.kind).remove(kept.name)

    # -- what is there ----------------------------------------------------------------------------

    def _save(self, gone: list[AsideFile]) -> None:
        files = [kept for _, kept in sorted(self._files.items())]
        self.home.write(_INDEX, records.encode(AsideIndex(files, self.removed, gone)))

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        data = self.home.read(_INDEX) or b"{}"
        held = records.decode(AsideIndex, data, f"{self.home.shown}/{_INDEX}")
        self.removed = held.removed
        self._files = {(kept.kind, kept.name): kept for kept in held.files}
        self._delete(held.gone)
        for kind in KINDS:
            folder = self.home.sub(kind)
            for name in folder.names():
                if (kind, name) in self._files:
                    continue
                if _TO in name:
                    folder.remove(name)  # it was being joined, and what it is made of is there
                else:
                    self._files[kind, name] = _found(folder, kind, name)

    def _forget_unfinished(self, number: int) -> None:
        """Files of a batch that did not get through, and does not write them again."""
        for place, kept in [*self._files.items()]:
            if kept.number >= number and not kept.joined and place not in self._fresh:
                del self._files[place]
                self._delete([kept])
                self._changed = True


def newest_rows(home: Folder, kind: str, rows: int) -> pa.Table:
    """The newest rows of a kind that are kept in a folder, at most so many, for who only looks.

    Another process may write there meanwhile; a file that has just gone is left out.
    """
    held = records.decode(AsideIndex, home.read(_INDEX) or b"{}", f"{home.shown}/{_INDEX}")
    names = sorted((kept.name for kept in held.files if kept.kind == kind), reverse=True)
    found: list[pa.Table] = []
    room = rows
    for name in names:
        data = home.sub(kind).read(name) if room > 0 else None
        if data is not None:
            table = _decoded(data)
            found.append(table.slice(max(table.num_rows - room, 0)))
            room -= found[-1].num_rows
    return pa.concat_tables(found[::-1], promote_options="permissive") if found else pa.table({})


def _decoded(data: bytes) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(arrow_input(data))


def _found(folder: Folder, kind: str, name: str) -> AsideFile:
    data = folder.read(name) or b""
    try:
        return AsideFile(kind, name, _decoded(data).num_rows, len(data))
    except (pa.ArrowException, OSError) as error:
        raise StateError(
            "a file of rows set aside cannot be read",
            given=f"{folder.shown}/{name}",
            hint=f"{reason_of(error)}; move it away",
        ) from error
