"""Reading a job file, and saying where it is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from catchment.errors import JobError, did_you_mean

_EXAMPLE = "a job file has at least queries:, a list"
_FORMS = ("text", "mapping")
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
                "a key stands twice in the job file", given=f"{name}, line {_line(key.start_mark)}",
                hint="leave out one of them",
            )  # fmt: skip
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
    return JobError(
        "the job file is not YAML", given=place, hint=f"{problem}; check indents and quotes"
    )


def explained(error: ValidationError, model: type[BaseModel]) -> JobError:
    """The first of pydantic's errors, in our words; a misspelt key before what it left missing."""
    errors = error.errors(include_url=False)
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    place = tuple(part for part in first["loc"] if part not in _FORMS)
    path = path_text(place)
    if first["type"] == "extra_forbidden":
        known = list(_model_at(model, place[:-1]).model_fields)
        hint = did_you_mean(str(place[-1]), known, "known: " + ", ".join(known))
        return JobError("no such key in the job file", given=path, hint=hint)
    if first["type"] == "missing":
        return JobError("a key is missing in the job file", given=path, hint="add it")
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_type(first, path)
    message = _MESSAGES.get(first["type"]) or first["msg"].removeprefix("Input ")
    given = f"{path} is {first['input']!r}" if path else repr(first["input"])
    return JobError("a wrong value in the job file", given=given, hint=f"it {message}")


def _wrong_type(error: Any, path: str) -> JobError:
    """A source or sink whose type nobody knows, or that has none."""
    if error["type"] == "union_tag_not_found":
        return JobError("a key is missing in the job file", given=f"{path}.type", hint="add it")
    given, known = (error["ctx"][name] for name in ("tag", "expected_tags"))
    hint = did_you_mean(given, [tag.strip("'") for tag in known.split(", ")])
    return JobError("no such type in the job file", given=f"{path}.type: {given}", hint=hint)


def path_text(place: tuple[int | str, ...]) -> str:
    """A place in the file as people write it.

    >>> path_text(("queries", 2, "windw"))
    'queries[2].windw'
    """
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def _model_at(model: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that describes a place in the file."""
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            model = next(_models(model.model_fields[part].annotation), model)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
