"""Parquet files, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.fs as pafs

from catchment.sources.aside import Aside, aside, reason_of
from catchment.sources.base import Piece, register_source
from catchment.sources.files import UNREADABLE, ExaminedFile, FileSource, refuse_passing
from catchment.sources.listing import ListedFile
from catchment.sources.predicate import pushed
from catchment.sources.sharing import Part
from catchment.sources.types import CODES, fit, plain

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MANY = 1 << 20
"""Rows that are worth a piece of their own; smaller row groups are read together."""
_TOO_MANY = 1 << 22
"""Rows of a group that are more than should be in memory at once."""
_FEW_BYTES = 4
"""A text that takes fewer bytes than its length alone would is stored as a code."""


@register_source
class Parquet(FileSource):
    """Parquet files. A file counts once its footer is there: before, it is still being written.

    Texts that are stored as codes stay codes (dictionary columns), which is twice as fast.
    """

    endings: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    type: Literal["parquet"] = "parquet"

    def examine(self, found: ListedFile) -> ExaminedFile:
        with _open(found.path) as file:
            meta = file.metadata
            groups = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            return ExaminedFile(file.schema_arrow, groups)

    def infer(self, found: ListedFile) -> pa.Schema:
        with _open(found.path) as file:
            return pa.schema([plain(field) for field in file.schema_arrow])

    def refine(self, schema: pa.Schema, found: ListedFile) -> pa.Schema:
        with _open(found.path) as file:
            coded = set(_coded(file.metadata))
        return pa.schema(
            [
                field.with_type(CODES)
                if field.type == pa.string() and field.name in coded
                else field
                for field in schema
            ]
        )

    def pieces(self, part: Part, schema: pa.Schema, where: str | None) -> Iterator[Piece]:
        rows = part.rows or []
        codes = [field.name for field in schema if pa.types.is_dictionary(field.type)]
        try:
            # Spark runs a task per core, so one thread is enough; the columns of a row group are
            # read in one go, so buffering them first would only copy them.
            with _open(part.path, memory_map=True, pre_buffer=False, read_dictionary=codes) as file:
                _same(file, part)
                yield from _read(file, part, schema, where)
        except UNREADABLE as error:
            refuse_passing(error)
            lost = f"{reason_of(error)}; {sum(rows)} events lost"
            bad = aside([Aside(part.path, -1, lost)])
            yield Piece(schema.empty_table(), bad, part.base)


def _open(path: str, **options: Any) -> pq.ParquetFile:
    # Imported late: a node that reads something else does without its memory.
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, **options)


def _read(
    file: pq.ParquetFile, part: Part, schema: pa.Schema, where: str | None
) -> Iterator[Piece]:
    kept = _matching_row_groups(part, schema, where)
    for run in _runs(part, kept):
        base = part.base + sum((part.rows or [])[: run[0] - part.first])
        try:
            tables = list(_tables(file, run, schema)) if len(run) > 1 else None
        except UNREADABLE as error:
            refuse_passing(error)
            tables = None  # each by itself, to lose no more than what is broken
        if tables is not None:
            yield from (Piece(table, None, base) for table in tables)
            continue
        for group in run:
            yield from _group(file, part, group, schema)


def _group(file: pq.ParquetFile, part: Part, group: int, schema: pa.Schema) -> Iterator[Piece]:
    """One row group; what of it cannot be read is one row set aside."""
    rows = part.rows or []
    base = part.base + sum(rows[: group - part.first])
    done, expected = 0, rows[group - part.first]
    try:
        for table in _tables(file, [group], schema):
            yield Piece(table, None, base + done)
            done += table.num_rows
    except UNREADABLE as error:
        refuse_passing(error)
        lost = f"{reason_of(error)}; {expected - done} events lost"
        yield Piece(schema.empty_table(), aside([Aside(part.path, group, lost)]), base + done)


def _tables(file: pq.ParquetFile, groups: list[int], schema: pa.Schema) -> Iterator[pa.Table]:
    names = schema.names
    rows = sum(file.metadata.row_group(group).num_rows for group in groups)
    if rows <= _TOO_MANY:
        yield fit(file.read_row_groups(groups, columns=names, use_threads=False), schema)
        return
    batches = file.iter_batches(_MANY, row_groups=groups, columns=names, use_threads=False)
    for batch in batches:
        yield fit(pa.Table.from_batches([batch]), schema)


def _runs(part: Part, kept: list[int]) -> Iterator[list[int]]:
    """Adjacent row groups, together while they are small."""
    run: list[int] = []
    held = 0
    for group in kept:
        rows = (part.rows or [])[group - part.first]
        if run and (group != run[-1] + 1 or held + rows > _MANY):
            yield run
            run, held = [], 0
        run.append(group)
        held += rows
    if run:
        yield run


def _matching_row_groups(part: Part, schema: pa.Schema, where: str | None) -> list[int]:
    """The row groups that may have events which meet the condition."""
    wanted = list(range(part.first, part.first + len(part.rows or [])))
    if where is None:
        return wanted
    import pyarrow.dataset as ds

    made: Any = ds.ParquetFileFormat().make_fragment(
        part.path, pafs.LocalFileSystem(), row_groups=wanted
    )
    # The condition is about what is read: where a column is converted, its statistics are not.
    alike = [field for field in made.physical_schema if _as_read(field, schema)]
    condition = pushed(where, pa.schema(alike))
    if condition is None:
        return wanted
    return [group.id for group in made.subset(condition).row_groups]


def _as_read(field: pa.Field[Any], schema: pa.Schema) -> bool:
    place = schema.get_field_index(field.name)
    if place < 0:
        return False
    wanted = schema.field(place).type
    if isinstance(wanted, pa.DictionaryType):
        wanted = wanted.value_type
    return bool(field.type == wanted)


def _same(file: pq.ParquetFile, part: Part) -> None:
    """Refuses a file that has been replaced by another since it was taken."""
    meta = file.metadata
    ours = range(part.first, part.first + len(part.rows or []))
    same = meta.num_row_groups == part.groups and all(
        meta.row_group(group).num_rows == rows
        for group, rows in zip(ours, part.rows or [], strict=True)
    )
    if not same:
        raise OSError("the file was replaced after it was taken")


def _coded(meta: pq.FileMetaData) -> Iterator[str]:
    """Columns of texts whose values take so few bytes that they must be codes."""
    for place in range(meta.num_columns if meta.num_row_groups else 0):
        chunk = meta.row_group(0).column(place)
        values = max(chunk.num_values, 1)
        if chunk.has_dictionary_page and chunk.total_uncompressed_size < _FEW_BYTES * values:
            yield chunk.path_in_schema
