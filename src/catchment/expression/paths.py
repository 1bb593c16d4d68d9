"""Fields of nested columns by their path: `req.bytes`, `tags['a']`, `items[0].price`.

A path is the name of a column that is taken out of another one: an expression has it as a column,
and whoever reads events takes it out where it is needed, so that nothing else of the nested column
is kept. A column that has the path for its own name is that column.

    {"req": {"bytes": 7}}   --req.bytes-->   7          a field of a struct
    {"tags": {"a": 1}}      --tags['a']-->   1          a value of a map, by its key
    {"items": [3, 4]}       --items[1]-->    4          an element of a list, from 0

What is not there is null: a struct that is null, a key that a map has not, an element past the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import SchemaError
from catchment.expression.nodes import Call, Literal, PathStep, path_text, render
from catchment.expression.values import is_list, is_text

_STEP = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]|\[(\d+)\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def steps_of(path: str, column: str) -> list[PathStep] | None:
    """The steps from a column to what a path names; None where the path does not begin there.

    >>> steps_of("req.tags['a b'][0]", "req")
    ['tags', 'a b', 0]
    """
    if not path.startswith(column):
        return None
    steps: list[PathStep] = []
    place = len(column)
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return None
        field, key, number = found.groups()
        text = field if key is None else _ESCAPED.sub(_unescaped, key)
        steps.append(text if number is None else int(number))
        place = found.end()
    return steps


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])


def column_in(names: Iterable[str], path: str) -> str | None:
    """The column that has what a path names; None where there is none of its name.

    >>> column_in(["ts", "req"], "req.bytes"), column_in(["ts"], "v")
    ('req', None)
    """
    known = [name for name in names if path.startswith(name) and steps_of(path, name) is not None]
    return max(known, key=len, default=None)


def columns_read(names: Iterable[str], wanted: Collection[str]) -> list[str]:
    """Those columns that are wanted or hold a wanted field, in their order."""
    given = list(names)
    read = {column_in(given, path) for path in wanted}
    return [name for name in given if name in read]


def type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type of what a path names in events of a schema; None where it begins with no column.

    Raises SchemaError where a column has no such field.
    """
    column = column_in(schema.names, path)
    if column is None or schema.names.count(column) > 1:
        return None
    kind: pa.DataType = schema.field(column).type
    steps = steps_of(path, column) or []
    for place, step in enumerate(steps):
        kind = _type_of_step(kind, step, path_text(column, steps[:place]), path)
    return kind


def type_of_step(kind: pa.DataType, step: PathStep, text: str) -> pa.DataType:
    """The type of a field or an element of a value that is written as `text`.

    >>> type_of_step(pa.list_(pa.int64()), 0, "items")
    DataType(int64)
    """
    made: pa.DataType = _type_of_step(kind, step, text, path_text(text, [step]))
    return made


def _type_of_step(kind: Any, step: PathStep, so_far: str, path: str) -> Any:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    if isinstance(kind, pa.StructType):
        names = [field.name for field in kind]
        if not isinstance(step, str) or names.count(step) != 1:
            raise SchemaError(
                f"{so_far} has no such field",
                given=path,
                hint=f"its fields are {', '.join(names)}",
            )
        return kind.field(step).type
    if isinstance(kind, pa.MapType):
        if (is_text if isinstance(step, str) else pa.types.is_integer)(kind.key_type):
            return kind.item_type
        raise SchemaError(
            f"the keys of {so_far} are of another type", given=f"{path}: keys are {kind.key_type}"
        )
    if is_list(kind):
        if isinstance(step, int):
            return kind.value_type
        raise SchemaError(
            f"{so_far} is a list, and has no fields",
            given=path,
            hint=f"elements go by number, as in {so_far}[0]; size({so_far}) counts them",
        )
    raise SchemaError(f"{so_far} has no fields", given=f"{path}: {so_far} is {kind}")


def part_of(node: Call, args: Sequence[Any]) -> Any:
    """part_of(value, 'field'), part_of(value, 0): one step into a value that is no column."""
    value, step = args[0], node.args[1]
    assert isinstance(step, Literal) and isinstance(step.value, str | int)
    if pa.types.is_null(value.type):
        return value
    type_of_step(value.type, step.value, render(node.args[0]))
    if not isinstance(value, pa.Scalar):
        return taken_out(value, [step.value])
    return taken_out(pa.array([value.as_py()], value.type), [step.value])[0]


def taken_out(column: Any, steps: Iterable[PathStep]) -> Any:
    """What a path names of an array; null where something on the way is not there.

    >>> taken_out(pa.array([{"b": 7}, None]), ["b"]).to_pylist()
    [7, None]
    """
    for step in steps:
        if isinstance(column.type, pa.DictionaryType):
            column = column.dictionary_decode()
        if isinstance(column.type, pa.StructType):
            column = pc.struct_field(column, step)
        elif isinstance(column.type, pa.MapType):
            key = pa.scalar(step, column.type.key_type)
            column = pc.map_lookup(column, key, "first")
        else:
            assert isinstance(step, int)
            column = _elements(column, step)
    return column


def _elements(column: Any, place: int) -> Any:
    """The elements of lists at a place; null where a list is shorter."""
    there = pc.greater(pc.list_value_length(column), pa.scalar(place)).fill_null(False)
    found = pc.list_element(column.filter(there), place)
    number = pc.subtract(pc.cumulative_sum(pc.cast(there, pa.int64())), pa.scalar(1))
    return found.take(pc.if_else(there, number, pa.scalar(None, pa.int64())))
