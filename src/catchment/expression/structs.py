"""Several values as one: named_struct, and the arguments of functions of several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.nodes import Call
from catchment.expression.values import DOUBLE, Value, kind, mismatch


def together(_: Call, args: Sequence[Value]) -> Value:
    """arguments(a, b): a struct of both, of which each may be null, for functions of several."""
    return _struct([str(n) for n in range(len(args))], args)


def named_struct(node: Call, args: Sequence[Value]) -> Value:
    """named_struct('a', 1, 'b', 2): a struct of these fields."""
    if len(args) % 2:
        raise mismatch(node, args[-1:], "a name before each value", "as in named_struct('a', v)")
    return _struct([name.as_py() for name in args[0::2]], args[1::2])


def _struct(names: list[str], args: Sequence[Value]) -> Value:
    typed = [pc.cast(arg, DOUBLE) if kind(arg) == "null" else arg for arg in args]
    lengths = [len(arg) for arg in typed if not isinstance(arg, pa.Scalar)]
    if not lengths:
        pairs = list(zip(names, typed, strict=True))
        types = pa.struct([(name, arg.type) for name, arg in pairs])
        return pa.scalar({name: arg.as_py() for name, arg in pairs}, types)
    repeat: Any = pa.repeat
    whole = [repeat(arg, lengths[0]) if isinstance(arg, pa.Scalar) else arg for arg in typed]
    return pa.StructArray.from_arrays(whole, names)
