"""JSON text of Arrow columns, many columns at a time and no Python per row.

What JSON has no word for is a text: NaN and the infinities, decimals, instants (ISO 8601, UTC
with a Z), durations (ISO 8601, in seconds), and bytes (base64 or hexadecimal).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as of
from pyarrow import compute

from catchment.expression.values import is_list, is_text

ArrowArray = Any
"""An Arrow array of any type; so are the functions over them, whose stubs know each type."""
pc: Any = compute

_SPECIAL = '\x00-\x1f"\\\\'
_ESCAPE = "\u241b"


@dataclass(frozen=True, slots=True)
class Style:
    """How bytes are written, and what stands for a NUL in texts where it may not.

    Where that sign itself is in a text, the sign for escape goes before it, and before each sign
    for escape: texts that differ stay different.
    """

    bytes: Literal["base64", "hex"] = "base64"
    nul: str | None = None

    def quoted(self, text: str) -> str:
        """A text as JSON.

        >>> Style().quoted('say "hé"')
        '"say \\\\"hé\\\\""'
        >>> Style(nul="\u2400").quoted("\\0 \u2400 \u241b")
        '"\u2400 \u241b\u2400 \u241b\u241b"'
        """
        if self.nul is not None:
            for sign in (_ESCAPE, self.nul):
                text = text.replace(sign, _ESCAPE + sign)
            text = text.replace("\0", self.nul)
        return json.dumps(text, ensure_ascii=False)

    @property
    def special(self) -> str:
        """The characters, as in a regular expression, that are not written as they are."""
        return _SPECIAL if self.nul is None else f"{_SPECIAL}{self.nul}{_ESCAPE}"


PLAIN = Style()


def whole(column: pa.ChunkedArray[Any]) -> ArrowArray:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def texts(columns: Sequence[ArrowArray], style: Style = PLAIN) -> list[ArrowArray]:
    """The JSON of each value; columns of one type are written together, as most are small.

    >>> made = texts([pa.array([1, None]), pa.array(["a"]), pa.array([3])])
    >>> [column.to_pylist() for column in made]
    [['1', 'null'], ['"a"'], ['3']]
    """
    kinds: dict[pa.DataType, list[int]] = {}
    for place, column in enumerate(columns):
        kinds.setdefault(column.type, []).append(place)
    made: list[ArrowArray] = [None] * len(columns)
    for places in kinds.values():
        some = [decoded(columns[place]) for place in places]
        text = _text(some[0] if len(some) == 1 else pa.concat_arrays(some), style)
        start = 0
        for place in places:
            made[place] = text.slice(start, len(columns[place]))
            start += len(columns[place])
    return made


def objects(
    names: Iterable[str], values: Sequence[ArrowArray], rows: int, style: Style = PLAIN
) -> ArrowArray:
    """A JSON object per row, of values that are JSON already.

    >>> objects(["a", "b"], [pa.array(["1"]), pa.array(["null"])], 1).to_pylist()
    ['{"a":1,"b":null}']
    """
    labels = [f"{style.quoted(name)}:" for name in names]
    return _joined("{", labels, values, "}", rows)


def lists(values: Sequence[ArrowArray], rows: int) -> ArrowArray:
    """A JSON list per row, of values that are JSON already.

    >>> lists([pa.array(["1", "2"]), pa.array(["true", "null"])], 2).to_pylist()
    ['[1,true]', '[2,null]']
    """
    return _joined("[", [""] * len(values), values, "]", rows)


def _joined(
    left: str, labels: Sequence[str], values: Sequence[ArrowArray], right: str, rows: int
) -> ArrowArray:
    if not values:
        return pa.repeat(pa.scalar(left + right), rows)
    parts: list[Any] = []
    for place, (label, value) in enumerate(zip(labels, values, strict=True)):
        parts += [("," if place else left) + label, value]
    return pc.binary_join_element_wise(*parts, right, "")


def decoded(array: ArrowArray) -> ArrowArray:
    """An array without a dictionary."""
    return array.dictionary_decode() if of.is_dictionary(array.type) else array


def _text(array: ArrowArray, style: Style) -> ArrowArray:
    """The JSON of each value; a null is the word."""
    writer = next((write for is_kind, write in _WRITERS if is_kind(array.type)), _one_by_one)
    return pc.fill_null(writer(array, style), "null")


def _between(left: str, array: ArrowArray, right: str) -> ArrowArray:
    return pc.binary_join_element_wise(left, array, right, "")


def _null(array: ArrowArray, _: Style) -> ArrowArray:
    return pa.nulls(len(array), pa.string())


def _word(array: ArrowArray, _: Style) -> ArrowArray:
    return array.cast(pa.string())


def _quoted_word(array: ArrowArray, _: Style) -> ArrowArray:
    return _between('"', array.cast(pa.string()), '"')


def _float(array: ArrowArray, _: Style) -> ArrowArray:
    if of.is_float16(array.type):
        array = array.cast(pa.float32())
    # Polars writes 1.0 where Arrow writes 1, and is faster.
    import polars as pl  # here and below: a node that delivers nothing never loads it

    text: ArrowArray = pl.Series(array).cast(pl.String).to_arrow().cast(pa.string())
    finite = pc.is_finite(array)
    if pc.all(finite, min_count=0).as_py():
        return text
    infinite = pc.if_else(pc.greater(array, 0), '"Infinity"', '"-Infinity"')
    return pc.if_else(finite, text, pc.if_else(pc.is_nan(array), '"NaN"', infinite))


def _string(array: ArrowArray, style: Style) -> ArrowArray:
    array = array.cast(pa.string())
    text = _between('"', array, '"')
    special = pc.fill_null(pc.match_substring_regex(array, f"[{style.special}]"), False)
    if not pc.any(special, min_count=0).as_py():
        return text
    escaped = [style.quoted(value) for value in array.filter(special).to_pylist()]
    return pc.replace_with_mask(text, special, pa.array(escaped, pa.string()))


def _bytes(array: ArrowArray, style: Style) -> ArrowArray:
    import polars as pl

    data = pl.Series(array.cast(pa.large_binary())).bin.encode(style.bytes)
    left = '"\\\\x' if style.bytes == "hex" else '"'
    return _between(left, data.to_arrow().cast(pa.string()), '"')


def _instant(array: ArrowArray, _: Style) -> ArrowArray:
    zoned = array.type.tz is not None
    kept = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    text = kept.view(pa.int64()).view(pa.timestamp("us")).cast(pa.string())
    return _between('"', pc.replace_substring(text, " ", "T"), 'Z"' if zoned else '"')


def _duration(array: ArrowArray, _: Style) -> ArrowArray:
    count = array.cast(pa.duration("us"), safe=False).view(pa.int64()).cast(pa.decimal128(19))
    seconds = pc.multiply(count, pa.scalar(Decimal("0.000001"), pa.decimal128(7, 6)))
    return _between('"PT', seconds.cast(pa.string()), 'S"')


def _list(array: ArrowArray, style: Style) -> ArrowArray:
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0]), pc.cumulative_sum(lengths)]).cast(pa.int32())
    inner = pa.ListArray.from_arrays(offsets, _text(decoded(array.flatten()), style))
    text = _between("[", pc.binary_join(inner, ","), "]")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _struct(array: ArrowArray, style: Style) -> ArrowArray:
    names = [array.type.field(place).name for place in range(array.type.num_fields)]
    inner = [_text(decoded(field), style) for field in array.flatten()]
    text = objects(names, inner, len(array), style)
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _one_by_one(array: ArrowArray, style: Style) -> ArrowArray:
    """For kinds that hardly ever come, such as maps."""
    made = [None if v is None else _python(v, style) for v in array.to_pylist()]
    return pa.array(made, pa.string())


def _python(value: object, style: Style) -> str:
    if isinstance(value, list):
        return f"[{','.join(_python(inner, style) for inner in value)}]"
    if isinstance(value, tuple):
        return _python(list(value), style)
    if isinstance(value, dict):
        pairs = (f"{style.quoted(str(k))}:{_python(v, style)}" for k, v in value.items())
        return f"{{{','.join(pairs)}}}"
    try:
        made: str = _text(pa.array([value]), style)[0].as_py()
    except pa.ArrowException:
        made = style.quoted(str(value))
    return made


def _is_bytes(kind: pa.DataType) -> bool:
    views = of.is_binary_view(kind) or of.is_fixed_size_binary(kind)
    return of.is_binary(kind) or of.is_large_binary(kind) or views


_WRITERS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[ArrowArray, Style], ArrowArray]], ...
] = (
    (of.is_null, _null),
    (of.is_integer, _word),
    (of.is_boolean, _word),
    (of.is_floating, _float),
    (is_text, _string),
    (of.is_timestamp, _instant),
    (of.is_decimal, _quoted_word),
    (of.is_date, _quoted_word),
    (of.is_time, _quoted_word),
    (of.is_duration, _duration),
    (_is_bytes, _bytes),
    (is_list, _list),
    (of.is_struct, _struct),
)
