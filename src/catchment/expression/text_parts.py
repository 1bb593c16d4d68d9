"""Texts put together and taken apart."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression import casting
from catchment.expression.nodes import Call
from catchment.expression.values import DOUBLE, INT, STRING, Value, kind, mismatch, need, null


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


def trim(node: Call, args: Sequence[Value]) -> Value:
    """Without spaces at both ends."""
    need(node, args, ("string", "null"), "text")
    return null(STRING) if kind(args[0]) == "null" else pc.utf8_trim(args[0], " ")


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
