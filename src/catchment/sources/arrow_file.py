"""Arrow IPC files, a record batch at a time; streams as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import pyarrow as pa

from catchment.sources.aside import Aside, aside, reason_of
from catchment.sources.base import Piece, register_source
from catchment.sources.files import UNREADABLE, ExaminedFile, FileSource, refuse_passing
from catchment.sources.listing import ListedFile
from catchment.sources.sharing import Part
from catchment.sources.types import fit, plain

_MAGIC = b"ARROW1"


@register_source
class ArrowFile(FileSource):
    """Files in Arrow's IPC format (also called Feather 2), or in its streaming format.

    A file counts once its footer is there. A stream has none: it has to stay unchanged for a while.
    """

    endings: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc", ".arrows")

    type: Literal["arrow"] = "arrow"

    def examine(self, found: ListedFile) -> ExaminedFile:
        if not _is_file(found.path):
            with _stream(found.path, None) as stream:
                columns = _lightest(stream.schema)
                schema = stream.schema
            with _stream(found.path, columns) as stream:
                return ExaminedFile(schema, [sum(batch.num_rows for batch in stream)])
        with _file(found.path, None) as file:
            schema = file.schema
        # The footer does not say how many rows there are: one column does, at little cost.
        with _file(found.path, _lightest(schema)) as file:
            batches = range(file.num_record_batches)
            return ExaminedFile(schema, [file.get_batch(i).num_rows for i in batches])

    def infer(self, found: ListedFile) -> pa.Schema:
        opened = _file if _is_file(found.path) else _stream
        with opened(found.path, None) as file:
            return pa.schema([plain(field) for field in file.schema])

    def may_grow(self, found: ListedFile) -> bool:
        try:
            return not _is_file(found.path)
        except OSError:
            return False  # nothing to wait for: `examine` says what is wrong

    def pieces(self, part: Part, schema: pa.Schema, where: str | None) -> Iterator[Piece]:
        rows = part.rows or []
        done = 0
        try:
            for group, batch in _batches(part, schema):
                expected = part.base + sum(rows[: group - part.first])
                if isinstance(batch, pa.RecordBatch):
                    table = fit(pa.Table.from_batches([batch]), schema)
                    yield Piece(table, None, expected + (done if len(rows) == 1 else 0))
                    done += table.num_rows
                    continue
                count = rows[group - part.first]
                bad = Aside(part.path, group, f"{reason_of(batch)}; {count} events lost")
                yield Piece(schema.empty_table(), aside([bad]), expected)
                done += count
        except UNREADABLE as error:
            refuse_passing(error)
            lost = f"{reason_of(error)}; {sum(rows) - done} events lost"
            yield Piece(schema.empty_table(), aside([Aside(part.path, -1, lost)]), part.base + done)


def _batches(part: Part, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch | Exception]]:
    """Record batches by their numbers, or why one cannot be read."""
    rows = part.rows or []
    if not _is_file(part.path):
        yield from ((0, batch) for batch in _streamed(part, schema))
        return
    with _file(part.path, None) as file:
        places = [file.schema.get_field_index(name) for name in schema.names]
        count = file.num_record_batches
    if count != part.groups:
        raise OSError("the file was replaced after it was taken")
    with _file(part.path, sorted(places)) as file:
        for group, expected in enumerate(rows, part.first):
            try:
                batch = file.get_batch(group)
                batch.validate()
                if batch.num_rows != expected:
                    raise OSError("the file was replaced after it was taken")
            except UNREADABLE as error:
                refuse_passing(error)
                yield group, error
            else:
                yield group, batch


def _streamed(part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _stream(part.path, None) as stream:
        places = [stream.schema.get_field_index(name) for name in schema.names]
    left = sum(part.rows or [])
    with _stream(part.path, sorted(places)) as stream:
        for batch in stream:
            batch.validate()
            if batch.num_rows > left:
                raise OSError("the file has grown after it was taken")
            left -= batch.num_rows
            yield batch
    if left:
        raise OSError("the file has shrunk after it was taken")


def _is_file(path: str) -> bool:
    with open(path, "rb") as file:
        head = file.read(len(_MAGIC))
    if len(head) < len(_MAGIC):
        raise OSError("the file is too short")
    return head == _MAGIC


def _file(path: str, columns: list[int] | None) -> Any:
    return pa.ipc.open_file(pa.memory_map(path), options=_options(columns))


def _stream(path: str, columns: list[int] | None) -> Any:
    return pa.ipc.open_stream(pa.memory_map(path), options=_options(columns))


def _options(columns: list[int] | None) -> pa.ipc.IpcReadOptions:
    return pa.ipc.IpcReadOptions(included_fields=columns or [], use_threads=False)


def _lightest(schema: pa.Schema) -> list[int]:
    """The column that is read fastest."""

    def weight(place: int) -> int:
        try:
            return int(schema.field(place).type.bit_width)
        except ValueError:  # of varying width
            return 1 << 30

    return [min(range(len(schema)), key=weight)] if len(schema) else []
