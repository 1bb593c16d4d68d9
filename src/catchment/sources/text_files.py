"""Files of lines: read in blocks of whole lines, of which the bad ones are set aside."""

from __future__ import annotations

import gzip
import io
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.sources.aside import Aside, aside, reason_of
from catchment.sources.base import Piece
from catchment.sources.files import UNREADABLE, ExaminedFile, FileSource, refuse_passing
from catchment.sources.listing import ListedFile
from catchment.sources.sharing import Part
from catchment.sources.text_values import look_like_times
from catchment.sources.types import TIME, misfit

BLOCK = 8 << 20
_SAMPLE = 4 << 20
_CHUNK = 1 << 20
_CAREFUL = 64 << 10
"""Bytes that are few enough to look at line by line."""
_MOST_GZIP = 1100
"""A byte of gzip stands for at most 1032."""


class LineBlock(NamedTuple):
    """Whole lines, where they begin in the file, and the number of the first."""

    data: bytes
    offset: int
    line: int


class Parsed(NamedTuple):
    """The good lines as a table; and of the bad ones the place in the block, why, and bytes."""

    table: pa.Table
    bad: list[tuple[int, str, bytes]]


class TextFiles(FileSource):
    """Files of lines, maybe compressed with gzip (.gz). An event is a line."""

    @abstractmethod
    def quick(self, block: bytes, header: list[str], schema: pa.Schema) -> pa.Table | None:
        """The lines of a block, all at once; None when one of them is bad."""

    @abstractmethod
    def rescue(self, block: bytes, header: list[str], schema: pa.Schema) -> Parsed:
        """The good lines of a block, and the bad ones: slower."""

    @abstractmethod
    def sample(self, block: bytes) -> pa.Table:
        """The lines of a block, in types that are guessed."""

    def parse(self, block: bytes, header: list[str], schema: pa.Schema) -> Parsed:
        """The lines of a block; a bad one slows down no more than its neighbourhood."""
        if not block or block.isspace():
            return Parsed(schema.empty_table(), [])
        table = self.quick(block, header, schema)
        if table is not None:
            return Parsed(table, [])
        parts = list(_cut(block, max(len(block) // 16, _CAREFUL)))
        if len(parts) == 1:
            return self.rescue(block, header, schema)
        tables, bad, line = [], [], 0
        for part in parts:
            parsed = self.parse(part, header, schema)
            tables.append(parsed.table)
            bad += [(line + at, why, body) for at, why, body in parsed.bad]
            line += _ends(part)
        return Parsed(pa.concat_tables(tables), bad)

    def header(self, first: bytes) -> tuple[list[str], int]:
        """The names in the first line, and how many bytes of the file it takes."""
        return [], 0

    def span(self, found: ListedFile) -> int:
        return found.size * (_MOST_GZIP if _is_gzip(found.path) else 1)

    def may_grow(self, found: ListedFile) -> bool:
        return True

    def examine(self, found: ListedFile) -> ExaminedFile:
        if found.size == 0:
            raise OSError("the file is empty")
        names, _ = self.header(_first_line(found.path))
        return ExaminedFile(_nulls(names) if names else None)

    def rows_after(self, path: str, start: int) -> int | None:
        if _is_gzip(path):
            return None
        try:
            with open(path, "rb") as file:
                skipped = self.header(file.readline(_CHUNK))[1] if start == 0 else start
                file.seek(skipped)
                lines, last = 0, b"\n"
                while chunk := file.read(_CHUNK):
                    lines, last = lines + _ends(chunk), chunk[-1:]
        except UNREADABLE:
            return None
        return lines + (last != b"\n")

    def infer(self, found: ListedFile) -> pa.Schema:
        reader = _BlockReader(found.path, found.size)
        block = next(reader.blocks(_SAMPLE), None)
        if block is None:
            raise OSError("the file is empty")
        table = self.sample(block.data)
        if not table.num_rows:
            raise OSError("there is no row yet to tell the types by")
        return pa.schema(
            [pa.field(name, _guess(table.column(name))) for name in table.column_names]
        )

    def pieces(self, part: Part, schema: pa.Schema, where: str | None) -> Iterator[Piece]:
        reader = _BlockReader(part.path, part.size)
        names: list[str] = []
        for number, block in enumerate(reader.blocks(BLOCK)):
            data, skipped = block.data, 0
            if number == 0:
                try:
                    names, skipped = self._header(data, schema)
                except UNREADABLE as error:
                    reader.damage = f"the file was replaced: {reason_of(error)}"
                    break
                data = data[skipped:]
            parsed = self.parse(data, names, schema)
            line = block.line + bool(skipped)
            rows = [Aside(part.path, line + at, why, body) for at, why, body in parsed.bad]
            yield Piece(parsed.table, aside(rows), part.base + block.offset + skipped)
        if reader.damage:
            bad = Aside(part.path, -1, reader.damage, reader.rest)
            yield Piece(schema.empty_table(), aside([bad]), part.base + reader.offset)

    def _header(self, data: bytes, schema: pa.Schema) -> tuple[list[str], int]:
        names, skipped = self.header(data)
        lacking = misfit(_nulls(names), schema) if names else None
        if lacking:
            raise OSError(lacking)
        return names, skipped


def _nulls(names: list[str]) -> pa.Schema:
    """Columns whose types are not known: null fits all."""
    return pa.schema([pa.field(name, pa.null()) for name in names])


class _BlockReader:
    """A file as far as it reached when it was taken, in blocks; `damage` is what went wrong."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.offset = 0
        self.damage = ""
        self.rest = b""

    def blocks(self, size: int) -> Iterator[LineBlock]:
        line, length = 1, 0
        held: list[bytes] = []
        for chunk in self._chunks():
            cut = chunk.rfind(b"\n") + 1
            if length + len(chunk) < size or not cut:
                held.append(chunk)
                length += len(chunk)
                continue
            data = b"".join([*held, chunk[:cut]])
            held = [chunk[cut:]]
            length = len(held[0])
            yield LineBlock(data, self.offset, line)
            line += _ends(data)
            self.offset += len(data)
        data = b"".join(held)
        if self.damage:
            # The last line may be cut short and still look whole, so it is not to be trusted.
            cut = data.rfind(b"\n") + 1
            data, self.rest = data[:cut], data[cut:]
        if data:
            yield LineBlock(data, self.offset, line)
            self.offset += len(data)

    def _chunks(self) -> Iterator[bytes]:
        try:
            with open(self.path, "rb") as raw:
                there = raw.seek(0, io.SEEK_END)
                raw.seek(0)
                zipped = _is_gzip(self.path)
                yield from (_unzipped if zipped else _plain)(raw, self.size)
            if there > self.size:
                self.damage = f"{there - self.size} bytes came after the file was taken"
            elif there < self.size:
                self.damage = f"{self.size - there} bytes lost: the file was cut"
        except UNREADABLE as error:
            refuse_passing(error)
            self.damage = f"{reason_of(error)}; what follows in the file is lost"


class _Limited(io.RawIOBase):
    """The beginning of a file: a taken file gives the same events although it grows."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._left)
        got = self._file.readinto(memoryview(buffer)[:wanted]) if wanted else 0
        self._left -= got
        return got


def _plain(file: io.BufferedReader, size: int) -> Iterator[bytes]:
    while chunk := file.read(min(_CHUNK, size)):
        yield chunk
        size -= len(chunk)


def _unzipped(file: io.BufferedReader, size: int) -> Iterator[bytes]:
    # read1 hands over what it has before it stumbles over what is broken.
    limited = io.BufferedReader(_Limited(file, size), _CHUNK)
    with gzip.GzipFile(fileobj=limited) as stream:
        while chunk := stream.read1(_CHUNK):
            yield chunk


def _cut(block: bytes, size: int) -> Iterator[bytes]:
    """A block in parts of whole lines, of about a size."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + size) + 1 or len(block)
        yield block[start:end]
        start = end


def _is_gzip(path: str) -> bool:
    return path.lower().endswith(".gz")


def _first_line(path: str) -> bytes:
    with gzip.open(path) if _is_gzip(path) else open(path, "rb") as file:
        return file.readline(_CHUNK)


def _guess(column: pa.ChunkedArray[Any]) -> pa.DataType:
    """A type that later lines are likely to fit as well."""
    kind: pa.DataType = column.type
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return TIME
    if pa.types.is_string(kind) and look_like_times(column.combine_chunks()):
        return TIME
    return kind


def _ends(block: bytes) -> int:
    """The number of line ends; bytes.count takes four times as long."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))


def has_lines(block: bytes, rows: int) -> bool:
    """Whether a block has as many lines that are not blank."""
    lines = _ends(block) + (not block.endswith(b"\n"))
    return lines == rows or len(lines_of(block)[0]) == rows


def lines_of(block: bytes) -> tuple[list[bytes], list[int]]:
    """The lines that are not blank, and the place of each."""
    lines, places = [], []
    for place, line in enumerate(block.split(b"\n")):
        if stripped := line.rstrip(b"\r"):
            lines.append(stripped)
            places.append(place)
    return lines, places
