"""Folders that name a column and its value, as Hive and Spark write them: `day=2026-05-01/`.

All files in such a folder have the column, with the same value in every row, whether or not the
files hold it themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"[+-]?\d{1,18}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

FolderValues = dict[str, str | None]
"""The columns that folders name, and their values as text."""


def folder_values(partition: str) -> FolderValues:
    """What the folders on the way to a file say.

    >>> folder_values("day=2026-05-01/shop=a%2Fb/late"), folder_values(".")
    ({'day': '2026-05-01', 'shop': 'a/b'}, {})
    """
    found: FolderValues = {}
    for folder in partition.split("/"):
        name, mark, text = folder.partition("=")
        if name and mark:
            found[unquote(name)] = None if text == _NULL else unquote(text)
    return found


def folder_fields(partitions: Iterable[str]) -> list[pa.Field[Any]]:
    """The columns that folders name: whole numbers, dates, or texts.

    >>> [(f.name, str(f.type)) for f in folder_fields(["n=1/d=2026-05-01", "n=07/d=x"])]
    [('n', 'int64'), ('d', 'string')]
    """
    texts: dict[str, list[str]] = {}
    for partition in dict.fromkeys(partitions):
        for name, text in folder_values(partition).items():
            texts.setdefault(name, []).extend([] if text is None else [text])
    return [pa.field(name, _type(found)) for name, found in texts.items()]


def _type(texts: list[str]) -> pa.DataType:
    if texts and all(_WHOLE.fullmatch(text) for text in texts):
        return pa.int64()
    if texts and all(_DATE.fullmatch(text) and _fits(text, pa.date32()) for text in texts):
        return pa.date32()
    return pa.string()


def _fits(text: str, kind: pa.DataType) -> bool:
    try:
        pa.array([text]).cast(_plain(kind))
    except pa.ArrowInvalid:
        return False
    return True


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def replaced(schema: pa.Schema, fields: Iterable[pa.Field[Any]]) -> pa.Schema:
    """Columns of a file, and of its folders, which come last."""
    of_folders = {field.name: field for field in fields}
    own = [field for field in schema if field.name not in of_folders]
    return pa.schema([*own, *of_folders.values()])


def having(schema: pa.Schema, partition: str, wanted: pa.Schema) -> pa.Schema:
    """The columns of a file and its folders, in the types wanted where values have them."""
    fields = []
    for name, text in folder_values(partition).items():
        at = wanted.get_field_index(name)
        kind = pa.string() if at < 0 else wanted.field(at).type
        fits = text is None or _fits(text, kind)
        fields.append(pa.field(name, kind if fits else pa.string()))
    return replaced(schema, fields)


def without_folders(schema: pa.Schema, values: FolderValues) -> pa.Schema:
    """The columns that files must have themselves."""
    return pa.schema([field for field in schema if field.name not in values])


def with_folders(table: pa.Table, schema: pa.Schema, values: FolderValues) -> pa.Table:
    """Rows of a file with the columns that its folders name, in the order of a schema."""
    rows = table.num_rows
    columns: list[Any] = []
    for field in schema:
        if field.name not in values:
            columns.append(table.column(field.name))
            continue
        value: Any = pa.array([values[field.name]], pa.string()).cast(_plain(field.type))[0]
        column: Any = pa.repeat(value, rows)
        coded = isinstance(field.type, pa.DictionaryType)
        columns.append(column.dictionary_encode().cast(field.type) if coded else column)
    return pa.Table.from_arrays(columns, schema=schema)
