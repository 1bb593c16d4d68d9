"""get_json_object: what a path names of a text in JSON, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from catchment.errors import QueryError
from catchment.expression.casting import show_float
from catchment.expression.nodes import Call, render
from catchment.expression.values import STRING, Value, kind, need, null

_STEP = re.compile(r"\.([^.\[\]*]+)|\['([^']*)'\]|\[(\d+)\]")


def json_object(node: Call, args: Sequence[Value]) -> Value:
    """Null where a text is no JSON, or has nothing at the path."""
    need(node, args, ("string", "null"), "text")
    steps = _steps(args[1].as_py())
    if steps is None:
        raise QueryError(
            "get_json_object has a path that cannot be read",
            given=render(node),
            hint="write '$.user.name', '$.items[0]' or \"$['a b']\"; * is not done",
        )
    value = args[0]
    if kind(value) == "null":
        return null(STRING)
    if isinstance(value, pa.Scalar):
        return pa.scalar(_taken(value.as_py(), steps), STRING)
    coded = value.dictionary_encode()
    made = [_taken(text, steps) for text in coded.dictionary.to_pylist()]
    return pa.array(made, STRING).take(coded.indices)


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[str | int, ...] | None:
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return None
        name, key, number = found.groups()
        steps.append(int(number) if number is not None else name if key is None else key)
        place = found.end()
    return tuple(steps)


class _Written(str):
    """A number as text."""


def _shown(text: str) -> _Written:
    return _Written(show_float(float(text)))


def _taken(text: str | None, steps: tuple[str | int, ...]) -> str | None:
    if text is None:
        return None
    try:
        held: Any = json.loads(text, parse_float=_shown, parse_int=_Written)
        for step in steps:
            held = held[step]
            if isinstance(held, _Written):
                return str(held) if step is steps[-1] else None
        if isinstance(held, dict | list):
            plain: Any = json.loads(text)
            for step in steps:
                plain = plain[step]
            return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    if held is None or isinstance(held, str):
        return held
    return "true" if held is True else "false"
