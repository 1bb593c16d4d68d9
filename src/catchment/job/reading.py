"""Reading a job file, and saying where it is wrong.

Text or a path goes in and plain data comes out (`read`); pydantic's errors about that data go in
and come out in our words, each with its place in the file (`tell_all`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from catchment.errors import JobError, did_you_mean
from catchment.model.section import SectionByType

_EXAMPLE = "a job file has at least queries:, a list"
_MESSAGES = {
    "model_type": "should be a mapping of keys to values",
    "list_type": "should be a list",
    "string_type": "should be a text",
}


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error, not the last one silently."""


_Fastest: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Fast(_Fastest):  # type: ignore[misc]
    """The same ten times as fast, but it says less well where a mistake is."""


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key, _ in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else repr(key)
        if name in seen:
            raise JobError(
                "a key stands twice in the job file",
                given=f"{name}, line {_line(key.start_mark)}",
                hint="leave out one of them",
            )
        seen.add(name)
    loader.flatten_mapping(node)
    made: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return made


for _kind in (_Loader, _Fast):
    _kind.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(source: str | Path) -> dict[str, Any]:
    """What a job file (a path, or its text) holds."""
    text = source if isinstance(source, str) and not _is_path(source) else _file(Path(source))
    try:
        data = yaml.load(text, Loader=_Fast)
    except yaml.YAMLError:
        data = _said_well(text)
    if not isinstance(data, dict):
        raise JobError(
            "the job file must be a mapping",
            given="nothing" if data is None else type(data).__name__,
            hint=_EXAMPLE,
        )
    return data


def _said_well(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise _syntax(error) from error


def _is_path(text: str) -> bool:
    return "\n" not in text and text.lower().endswith((".yaml", ".yml", ".json"))


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise JobError(
            "the job file cannot be read", given=path, hint=f"{error.strerror}".lower()
        ) from error
    except UnicodeDecodeError as error:
        raise JobError("the job file is not text", given=path, hint="save it as UTF-8") from error


def _line(mark: Any) -> int:
    return int(mark.line) + 1


def _syntax(error: yaml.YAMLError) -> JobError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    place = f"line {_line(mark)}, column {mark.column + 1}" if mark else None
    hint = f"{problem}; check indents and quotes"
    shown = "" if mark is None or not mark.buffer else _line_of(mark)
    if any(sign in shown for sign in "[{"):
        hint += ": a text that begins with [ or {, or has a comma within them, stands in quotes"
    return JobError("the job file is not YAML", given=place, hint=hint)


def _line_of(mark: Any) -> str:
    """The line of the file that a mark is in."""
    return str(mark.buffer).splitlines()[mark.line] if mark.buffer.strip("\0") else ""


JobPath = tuple[int | str, ...]
"""Where something is in a job file: keys, and numbers of elements of lists."""


@dataclass(frozen=True)
class FieldError:
    """One of pydantic's errors: where it is, and how to say it in our words."""

    place: JobPath
    kind: str
    """The kind of mistake, by pydantic's name."""
    detail: Mapping[str, Any]
    known: tuple[str, ...] = ()
    """The keys that may stand there, where one stands that may not."""

    def error(self, path: str) -> JobError:
        """The error, of something that is called so."""
        if self.kind == "extra_forbidden":
            hint = did_you_mean(str(self.place[-1]), self.known, "known: " + ", ".join(self.known))
            return JobError("no such key in the job file", given=path, hint=hint)
        if self.kind == "missing":
            return JobError("a key is missing in the job file", given=path, hint="add it")
        if self.kind == "no_type":
            return JobError("a key is missing in the job file", given=f"{path}.type", hint="add it")
        if self.kind == "unknown_type":
            name, hint = (self.detail["ctx"][key] for key in ("type", "hint"))
            given = f"{path}.type: {name}"
            return JobError("no such type in the job file", given=given, hint=hint)
        value = self.detail["input"]
        given = f"{path} is {value!r}" if path else repr(value)
        if self.kind == "value_error":  # raised by a check of ours, which says it in a sentence
            hint = str(self.detail["ctx"]["error"])
        else:
            message = _MESSAGES.get(self.kind) or str(self.detail["msg"]).removeprefix("Input ")
            hint = f"it {message}"
        return JobError("a wrong value in the job file", given=given, hint=hint)


def explained(error: ValidationError, model: type[BaseModel], data: Any) -> JobError:
    """The first of pydantic's errors, in our words; a misspelt key before what it left missing."""
    first = tell_all(error, model, data)[0]
    return first.error(path_text(first.place))


def tell_all(error: ValidationError, model: type[BaseModel], data: Any) -> list[FieldError]:
    """All of pydantic's errors about what a file holds, misspelt keys first."""
    told = []
    for detail in error.errors(include_url=False):
        kind = detail["type"]
        place = _place(detail["loc"], data, kind == "missing")
        extra = kind == "extra_forbidden"
        known = tuple(_keys(_model_at(model, place[:-1], data))) if extra else ()
        told.append(FieldError(place, kind, dict(detail), known))
    return sorted(told, key=lambda one: one.kind != "extra_forbidden")


def _place(loc: JobPath, data: Any, missing: bool) -> JobPath:
    """Where in the file an error is; pydantic also names the forms that a value was read as."""
    place: list[int | str] = []
    for number, part in enumerate(loc):
        listed = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if missing and number == len(loc) - 1:
            place.append(part)
        elif listed or (isinstance(data, Mapping) and part in data):
            place.append(part)
            data = data[part]
    return tuple(place)


def path_text(place: JobPath) -> str:
    """A place in the file as people write it.

    >>> path_text(("queries", 2, "windw"))
    'queries[2].windw'
    """
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def _keys(model: type[BaseModel]) -> dict[str, Any]:
    """The keys of a model as the file writes them, and what they hold."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _model_at(model: type[BaseModel], place: JobPath, data: Any) -> type[BaseModel]:
    """The model that describes a place in the file."""
    options = [model]
    for part in place:
        if isinstance(part, str):
            keys = _keys(_option(options, data))
            options = list(_models(keys.get(part))) or options
        data = data[part]
    return _option(options, data)


def _option(options: list[type[BaseModel]], data: Any) -> type[BaseModel]:
    """The model that a mapping is meant for: of several, the one of its type."""
    first = options[0]
    return first.class_for(data) if issubclass(first, SectionByType) else first


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
