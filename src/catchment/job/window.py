"""Windows in job files: `sliding(10s, 5s)` or `{sliding: {length: 10s, slide: 5s}}`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from catchment.errors import JobError, QueryError, did_you_mean
from catchment.model.window import BUILDERS, Window

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_NAMED = re.compile(r"\s*(\w+)\s*(?:=>|=(?!=))\s*(.*)", re.DOTALL)
_PIECE = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|.""", re.DOTALL)
_EXAMPLE = "try sliding(10s, 5s) or {sliding: {length: 10s, slide: 5s}}"


def read_window(value: Any, path: str) -> Any:
    """The window; what is no window at all passes through, for the query to refuse."""
    if isinstance(value, str):
        return _from_text(value, path)
    if isinstance(value, Mapping):
        return _from_mapping(value, path)
    return value


def _from_text(text: str, path: str) -> Window:
    call = _CALL.fullmatch(text)
    if call is None:
        raise JobError("not a window in the job file", given=f"{path}: {text}", hint=_EXAMPLE)
    known = list(_parameters(call[1]))
    named: dict[str, Any] = {}
    for index, part in enumerate(_split(call[2])):
        pair = _NAMED.fullmatch(part)
        if pair and pair[1] in known:
            name, given = pair[1], pair[2]
        elif index < len(known):
            name, given = known[index], part
        else:
            raise _arguments(call[1], f"{path}: {text}")
        if name in named:
            raise JobError(
                f"the window {call[1]} has an argument twice",
                given=f"{path}: {text}",
                hint=f"give {name} once",
            )
        named[name] = _plain(given)
    return _built(call[1], named, path)


def _from_mapping(value: Mapping[Any, Any], path: str) -> Window:
    if len(value) != 1:
        raise JobError(
            "a window in the job file has one name",
            given=f"{path}: {', '.join(map(str, value))}",
            hint=_EXAMPLE,
        )
    ((name, options),) = value.items()
    known = list(_parameters(str(name)))
    if not isinstance(options, Mapping):
        options = {known[0]: options}
    for key in options:
        if key not in known:
            raise JobError(
                "no such key in the job file",
                given=f"{path}.{name}.{key}",
                hint=did_you_mean(str(key), known),
            )
    return _built(str(name), dict(options), path)


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    if name not in BUILDERS:
        raise QueryError("no such window", given=name, hint=BUILDERS.hint(name))
    return inspect.signature(BUILDERS[name]).parameters


def _built(name: str, options: dict[str, Any], path: str) -> Window:
    needed = [n for n, p in _parameters(name).items() if p.default is p.empty]
    if any(n not in options for n in needed):
        raise _arguments(name, f"{path}: {', '.join(options) or 'nothing'}")
    plain = {k: str(v) if type(v) is date else v for k, v in options.items()}
    return BUILDERS[name](**plain)


def _arguments(name: str, given: str) -> JobError:
    parts = [n if p.default is p.empty else f"[{n}]" for n, p in _parameters(name).items()]
    return JobError(
        f"the window {name} has the wrong arguments",
        given=given,
        hint=f"it takes {', '.join(parts)}",
    )


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no quotes or parentheses."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece == "(") - (piece == ")")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in parts if part.strip()]


def _plain(text: str) -> Any:
    """A whole number as such, a text without the quotes around all of it."""
    text = text.strip()
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if re.fullmatch(r"[+-]?\d+\.\d+", text):
        return float(text)
    quoted = _PIECE.fullmatch(text)
    return text[1:-1] if quoted and len(text) > 1 else text


def window_schema() -> dict[str, Any]:
    """What the JSON schema says of a window."""
    forms: list[dict[str, Any]] = [{"type": "string", "examples": ["sliding(10s, 5s)"]}]
    for name in BUILDERS:
        parameters = _parameters(name)
        options = {
            "type": "object",
            "properties": {n: {"type": ["string", "integer"]} for n in parameters},
            "required": [n for n, p in parameters.items() if p.default is p.empty],
            "additionalProperties": False,
        }
        scalar = {"type": ["string", "integer"]}
        forms.append(
            {
                "type": "object",
                "properties": {name: {"anyOf": [scalar, options]}},
                "required": [name],
                "additionalProperties": False,
            }
        )
    return {"anyOf": forms}
