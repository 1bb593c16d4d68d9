"""Texts put together and taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import QueryError
from catchment.expression import casting, lists
from catchment.expression.nodes import Call, render
from catchment.expression.values import (
    BOOL,
    DOUBLE,
    INT,
    STRING,
    Value,
    is_list,
    kind,
    mismatch,
    need,
    null,
    of_each,
    where,
)


def concat(node: Call, args: Sequence[Value]) -> Value:
    """The texts of all values, one behind the other; null where one is."""
    if any(kind(arg) == "null" for arg in args):
        return null(STRING)
    texts = [
        arg if kind(arg) == "string" else casting.cast(Call("cast", (of,), "STRING"), [arg])
        for of, arg in zip(node.args, args, strict=True)
    ]
    return pc.binary_join_element_wise(*[pc.cast(t, STRING) for t in texts], pa.scalar(""))


def substring(node: Call, args: Sequence[Value]) -> Value:
    """The characters from a place on, counted from 1, or from the end if it is negative."""
    need(node, args[:1], ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(STRING)
    place = args[1].as_py()
    start = place - 1 if place > 0 else place
    if len(args) < 3:
        return pc.utf8_slice_codeunits(args[0], start)
    length = max(args[2].as_py(), 0)
    stop = start + length
    if length == 0:
        return pc.utf8_slice_codeunits(args[0], 0, 0)
    return pc.utf8_slice_codeunits(args[0], start, None if start < 0 <= stop else stop)


def combined(node: Call, args: Sequence[Value]) -> Value:
    """tuple(a, b): a text that is equal for equal values and for no others; null where one is.

    Each value stands behind the number of its characters.
    """
    if any(kind(arg) == "null" for arg in args):
        return null(STRING)
    parts: list[Value] = []
    for arg in args:
        text = _text(node, arg, args)
        parts += [pc.cast(pc.utf8_length(text), STRING), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(":"))


def _text(node: Call, value: Value, args: Sequence[Value]) -> Value:
    of = kind(value)
    if of == "other":
        raise mismatch(node, args, "values that can be compared")
    if of == "float":  # -0.0 + 0.0 is 0.0
        doubles: Value = pc.cast(value, DOUBLE, safe=False)
        return pc.cast(pc.add(doubles, pa.scalar(0.0)), STRING)
    if of == "time":
        return pc.cast(pc.cast(value, INT), STRING)
    return pc.cast(value, STRING)


_TRIMS = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}


def trimmed(node: Call, args: Sequence[Value]) -> Value:
    """trim, ltrim and rtrim: without spaces, or other characters, at both ends or at one."""
    need(node, args[-1:], ("string", "null"), "text")
    if kind(args[-1]) == "null":
        return null(STRING)
    return _TRIMS[node.op](args[-1], args[0].as_py() if len(args) > 1 else " ")


def right(node: Call, args: Sequence[Value]) -> Value:
    """The last characters."""
    count = args[1].as_py()
    if count <= 0:
        empty = Call("substring", (node.args[0], node.args[1], node.args[1]))
        return substring(empty, [args[0], pa.scalar(1), pa.scalar(0)])
    last = Call("substring", (node.args[0], node.args[1]))
    return substring(last, [args[0], pa.scalar(-count)])


def padded(node: Call, args: Sequence[Value]) -> Value:
    """lpad and rpad: as many characters as are wanted, filled up or cut off behind."""
    need(node, args[:1], ("string", "null"), "text")
    width, filling = max(args[1].as_py(), 0), args[2].as_py() if len(args) > 2 else " "
    if width > MOST_CHARACTERS:
        raise QueryError(
            f"{node.op} makes texts that are too long",
            given=render(node),
            hint=f"at most {MOST_CHARACTERS:,} characters",
        )
    if kind(args[0]) == "null":
        return null(STRING)
    cut: Value = pc.utf8_slice_codeunits(args[0], 0, width)
    if not filling:
        return cut
    missing = pc.subtract(pa.scalar(width), pc.cast(pc.utf8_length(cut), INT))
    whole = filling * (width // len(filling) + 1)
    fillings = pa.array([whole[:n] for n in range(width + 1)], STRING)
    if isinstance(cut, pa.Scalar):
        if not cut.is_valid:
            return cut
        added: Value = fillings[missing.as_py()]
    else:
        added = fillings.take(missing)
    parts = (added, cut) if node.op == "lpad" else (cut, added)
    return pc.binary_join_element_wise(*[pc.cast(p, STRING) for p in parts], pa.scalar(""))


MOST_CHARACTERS = 10_000
"""Characters of what lpad, rpad and repeat make of one text."""


def repeated(node: Call, args: Sequence[Value]) -> Value:
    """A text as often as a number says."""
    need(node, args[:1], ("string", "null"), "text")
    times = max(args[1].as_py(), 0)
    if times > MOST_CHARACTERS:
        raise QueryError(
            "repeat makes texts that are too long",
            given=render(node),
            hint=f"at most {MOST_CHARACTERS:,} times",
        )
    if kind(args[0]) == "null":
        return null(STRING)
    return pc.binary_repeat(args[0], times)


_EACH: dict[str, Callable[[str], Any]] = {
    "initcap": lambda text: " ".join(w[:1].title() + w[1:].lower() for w in text.split(" ")),
    "ascii": lambda text: ord(text[0]) if text else 0,
    "octet_length": lambda text: len(text.encode()),
    "bit_length": lambda text: 8 * len(text.encode()),
}


def of_text(node: Call, args: Sequence[Value]) -> Value:
    """initcap, ascii, octet_length and bit_length."""
    need(node, args, ("string", "null"), "text")
    to = STRING if node.op == "initcap" else INT
    return null(to) if kind(args[0]) == "null" else of_each(args[0], _EACH[node.op], to)


def translated(node: Call, args: Sequence[Value]) -> Value:
    """translate(s, 'abc', 'xy'): characters replaced one by one; those without another go."""
    need(node, args, ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(STRING)
    old, new = args[1].as_py(), args[2].as_py()
    table: dict[int, str | None] = {}
    for place, letter in enumerate(old):
        table.setdefault(ord(letter), new[place] if place < len(new) else None)
    return of_each(args[0], lambda text: text.translate(table), STRING)


def before_delimiter(node: Call, args: Sequence[Value]) -> Value:
    """substring_index(s, '.', 2): what stands before the second dot; with -2, behind the second
    from the end."""
    need(node, args[:1], ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(STRING)
    between: str = args[1].as_py()
    count: int = args[2].as_py()

    def cut(text: str) -> str:
        if not between or not count:
            return ""
        if count > 0:
            return between.join(text.split(between, count)[:count])
        return between.join(text.rsplit(between, -count)[count:])

    return of_each(args[0], cut, STRING)


def reversed_text(node: Call, args: Sequence[Value]) -> Value:
    """reverse, of texts and of lists."""
    if is_list(args[0].type):
        return lists.reverse(node, args)
    need(node, args, ("string", "null"), "text or a list")
    return null(STRING) if kind(args[0]) == "null" else pc.utf8_reverse(args[0])


def replace(node: Call, args: Sequence[Value]) -> Value:
    """Every occurrence of a text replaced by another, or left out."""
    need(node, args, ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(STRING)
    old, new = args[1].as_py(), args[2].as_py() if len(args) > 2 else ""
    if not old:
        return args[0]
    return pc.replace_substring(args[0], pattern=old, replacement=new)


def place_of(node: Call, args: Sequence[Value]) -> Value:
    """instr: where a text first begins in another, counted from 1; 0 where it does not."""
    need(node, args, ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(INT)
    wanted = args[1].as_py()
    if not wanted:
        return pc.if_else(pc.is_null(args[0]), null(INT), pa.scalar(1))
    before: Any = pc.split_pattern(pc.cast(args[0], STRING), pattern=wanted, max_splits=1)
    if isinstance(before, pa.Scalar):
        found = before.as_py()
        if found is None:
            return null(INT)
        return pa.scalar(0 if len(found) == 1 else len(found[0]) + 1)
    one = pa.scalar([""], pa.list_(STRING))
    first: Value = pc.utf8_length(pc.list_element(where(pc.is_valid(before), before, one), 0))
    there = pc.equal(pc.list_value_length(before), pa.scalar(2))
    place = pc.if_else(there, pc.add(pc.cast(first, INT), pa.scalar(1)), pa.scalar(0))
    return pc.if_else(pc.is_null(args[0]), null(INT), place)


def holds(node: Call, args: Sequence[Value]) -> Value:
    """contains, startswith and endswith."""
    need(node, args, ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(BOOL)
    kernel: Any = {
        "contains": pc.match_substring,
        "startswith": pc.starts_with,
        "endswith": pc.ends_with,
    }[node.op]
    return kernel(args[0], pattern=args[1].as_py())


def concat_ws(node: Call, args: Sequence[Value]) -> Value:
    """Texts with a separator between them; what is null is left out."""
    texts = []
    for of, arg in zip(node.args[1:], args[1:], strict=True):
        if kind(arg) == "null":
            continue
        if is_list(arg.type):
            some = pc.greater(pc.list_value_length(arg), pa.scalar(0))
            texts.append(where(some, lists.join(node, [arg, args[0]]), null(STRING)))
            continue
        if kind(arg) == "other":
            raise mismatch(node, args, "values that have a text")
        text = arg if kind(arg) == "string" else casting.cast(Call("cast", (of,), "STRING"), [arg])
        texts.append(pc.cast(text, STRING))
    if not texts:
        return pa.scalar("", STRING)
    if not args[0].as_py():  # Arrow does not skip nulls then
        texts = [pc.coalesce(text, pa.scalar("", STRING)) for text in texts]
    # Of a row of nulls alone Arrow would make no text at all, and the next row take its place.
    texts[0] = where(_nothing(texts), pa.scalar("", STRING), texts[0])
    return pc.binary_join_element_wise(*texts, args[0], null_handling="skip")


def _nothing(texts: Sequence[Value]) -> Value:
    """Where all of several texts are null."""
    missing: Value = pc.is_null(texts[0])
    for text in texts[1:]:
        missing = pc.and_(missing, pc.is_null(text))
    return missing
