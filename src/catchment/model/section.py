"""A part of the job file: a frozen model that refuses keys it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from catchment.model.settings import not_negative
from catchment.registry import Registry, installed


class Section(BaseModel):
    """A part of the job file; a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def duration_option(what: str) -> AfterValidator:
    """Checks an option that is a duration of zero or more, as in "30s"; it stays a text.

    An option has it in its type: `timeout: Annotated[str, duration_option("timeout")]`.
    """

    def checked(text: str) -> str:
        not_negative(text, what)
        return text

    return AfterValidator(checked)


class SectionByType(Section):
    """A part of the job file of which there are several, told apart by the key `type`.

    The base of them (`Source`, `Sink`) has the registry of all, and stands for any of them: in a
    job file `{type: csv, path: rides.csv}` is read as the class that is registered as `csv`.
    """

    registry: ClassVar[Registry[Any]]
    """The classes by their type; only the base has it."""
    type: str = ""
    """Each class says its own: `type: Literal["csv"] = "csv"`."""

    @classmethod
    def class_for(cls, data: object) -> Any:
        """The class that a part of a job file is meant for, by its type; else the base."""
        name = data.get("type") if isinstance(data, Mapping) else None
        found = cls.registry.get(name) if cls._is_base() and isinstance(name, str) else None
        return cls if found is None else found

    def __reduce_ex__(self, protocol: Any) -> Any:
        # What a package has travels by its name: whoever lacks the package is told so.
        if self.type in installed(self.registry.group):
            base = next(kind for kind in type(self).__mro__ if "registry" in vars(kind))
            return _restored, (base, self.type, self.__getstate__())
        return super().__reduce_ex__(protocol)

    def __getstate__(self) -> dict[Any, Any]:
        """The options alone: what was made of them, such as connections, stays in its process."""
        fresh = {
            name: attribute.get_default(call_default_factory=True)
            for name, attribute in self.__private_attributes__.items()
        }
        return super().__getstate__() | {"__pydantic_private__": fresh or None}

    @classmethod
    def _is_base(cls) -> bool:
        return "registry" in vars(cls)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if cls._is_base():
            return core_schema.no_info_plain_validator_function(cls._of_its_type)
        return handler(source)

    @classmethod
    def _of_its_type(cls, value: Any) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise PydanticKnownError("model_type", {"class_name": cls.__name__})
        if "type" not in value:
            raise PydanticCustomError("no_type", "it has no type")
        made = cls.class_for(value)
        if made is cls:
            name = str(value["type"])
            context = {"type": name, "hint": cls.registry.hint(name)}
            raise PydanticCustomError("unknown_type", "its type is not known", context)
        section: Self = made.model_validate(value)
        return section

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        if not cls._is_base():
            return handler(schema)
        forms = {name: cls.registry[name].__pydantic_core_schema__ for name in cls.registry}
        return handler(core_schema.tagged_union_schema(forms, "type"))


def _restored(base: type[SectionByType], name: str, state: dict[Any, Any]) -> Any:
    """A section of a package in another process."""
    kind = base.registry.needed(name)
    made = kind.__new__(kind)
    made.__setstate__(state)
    return made


def registry_of_types(what: str, group: str, base: str) -> Registry[Any]:
    """A registry of sections by their type."""

    def read(name: str, found: Any) -> Any:
        good = isinstance(found, type) and issubclass(found, SectionByType)
        return found if good and type_of(found) == name else None

    return Registry(what, group, base, read)


def type_of(section: type[SectionByType]) -> str:
    """What stands for a class at the key `type`."""
    return str(section.model_fields["type"].default)
