"""Things that go by a name: windows, functions, operators, sources, sinks, flush policies.

There is one registry for each of these kinds. A name comes to be known in one of three ways:

* Catchment has it. Its file registers it, and the `__init__` of its package imports the file.
* An installed package has it, as an entry point of the registry's group. In its pyproject.toml:

      [project.entry-points."catchment.sinks"]
      webhook = "my_package.webhook:Webhook"

* This process has registered it, as `ct.register_function` does; that counts before packages.

A name that two packages have, or a package and Catchment, is refused when it is used.

Nothing is imported before a name is looked up, and then only what has this name. Only entry points
of installed packages are ever imported: a name in a job file is looked up, never taken as a module.
Names travel in plans and in job files, so each process that runs them needs the packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, overload

from catchment.errors import ExtensionError, did_you_mean

Thing = TypeVar("Thing")
Default = TypeVar("Default")

_PLAIN = 0.75
"""How much a name looks like a known one where it is plainly misspelt."""

_LOOKED_UP: list[dict[str, Any]] = []
"""What each registry has looked up."""


class Registry(Mapping[str, Thing], Generic[Thing]):
    """What is known by a name, of one kind: a mapping that imports things when they are asked for.

    `name in registry` and iteration import nothing but Catchment's own; `registry[name]` imports
    the entry point of that name, and raises ExtensionError where it cannot be used.

    >>> as_it_is = lambda name, given: given
    >>> letters = Registry("letter", "catchment.letters", "catchment.errors", as_it_is)
    >>> letters.add("a", "A")
    'A'
    >>> letters["a"], letters.get("b"), list(letters)
    ('A', None, ['a'])
    """

    def __init__(
        self,
        what: str,
        group: str,
        home: str,
        read: Callable[[str, Any], Thing | None],
    ) -> None:
        self.what = what
        """One of these things, in an error's words."""
        self.group = group
        """The group of entry points of other packages."""
        self._home = home
        """The module whose import registers what Catchment itself has."""
        self._read = read
        """What an entry point gives for a name; None where it gives no such thing."""
        self._things: dict[str, Thing] = {}
        self._settled: dict[str, Thing] = {}
        """What was looked up before, and is nobody else's."""
        _LOOKED_UP.append(self._settled)

    def add(self, name: str, thing: Thing) -> Thing:
        """Makes a thing known in this process; one of that name before it is replaced."""
        self._things[name] = thing
        self._settled.pop(name, None)
        return thing

    def __getitem__(self, name: str) -> Thing:
        found = self._settled.get(name)
        if found is None:
            found = self._settled[name] = self._looked_up(name)
        return found

    @overload
    def get(self, name: str, default: None = None, /) -> Thing | None: ...
    @overload
    def get(self, name: str, default: Default, /) -> Thing | Default: ...
    def get(self, name: str, default: object = None, /) -> object:
        """What a mapping's `get` gives, remembered: planning asks for few names very often."""
        found = self._settled.get(name)
        return super().get(name, default) if found is None else found

    def _looked_up(self, name: str) -> Thing:
        self._load_own()
        there = self._things.get(name)
        if there is not None and not self._own(there):
            return there
        claims = installed(self.group).get(name, ())
        who = [_entry_text(entry) for entry in claims]
        who += [] if there is None else ["Catchment itself"]
        if len(who) > 1:
            raise ExtensionError(
                f"several packages have a {self.what} of this name",
                given=f"{name}: {' and '.join(who)}",
                hint="leave one of them, or rename it in the pyproject.toml of its package",
            )
        if there is not None:
            return there
        if not claims:
            raise KeyError(name)
        # Importing the module may register the thing, too; what the entry point names counts.
        return self.add(name, self._loaded(claims[0]))

    def registered(self) -> Mapping[str, Thing]:
        """What Catchment and this process have registered; packages are not looked at."""
        self._load_own()
        return self._things

    def needed(self, name: str) -> Thing:
        """The thing of a name that another process sent; an error where this process lacks it."""
        found = self.get(name)
        if found is None:
            what = f"a {self.what} of this name is not installed here"
            raise ExtensionError(what, given=name, hint=self.missing(name))
        return found

    def __contains__(self, name: object) -> bool:
        self._load_own()
        return name in self._things or name in installed(self.group)

    def __iter__(self) -> Iterator[str]:
        self._load_own()
        return iter(sorted({*self._things, *installed(self.group)}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def hint(self, name: str, besides: Iterable[str] = ()) -> str:
        """The hint for a name that is not known; `besides` are names with another meaning."""
        known = [*self, *besides]
        hint = did_you_mean(name, known)
        return hint if _misspelt(name, known) else f"{hint}; or {self.elsewhere(name)}"

    def elsewhere(self, name: str) -> str:
        """The hint for a name that may be known in other processes."""
        return f"install here the package that has the entry point {name!r} of {self.group}"

    def missing(self, name: str) -> str:
        """The hint for a name that was known where it was sent from, and is not known here."""
        meant = did_you_mean(name, self) if _misspelt(name, self) else ""
        return self.elsewhere(name) + (f"; {meant}" if meant else "")

    def _load_own(self) -> None:
        import_module(self._home)

    def _own(self, thing: Thing) -> bool:
        """Whether a thing, or its class, is in one of Catchment's files."""
        module = getattr(thing, "defined_in", None) or getattr(thing, "__module__", "")
        return str(module).startswith(f"{self._home}.")

    def _loaded(self, entry: EntryPoint) -> Thing:
        found = _imported(entry)
        made = self._read(entry.name, found)
        if made is None:
            raise ExtensionError(
                f"an entry point of {self.group} gives no {self.what} of its name",
                given=f"{entry.name}: {_entry_text(entry)}",
                hint=f"it gives {found!r}",
            )
        return made


def _misspelt(name: str, known: Iterable[str]) -> bool:
    """Whether a name is plainly one of the known ones, misspelt."""
    return bool(get_close_matches(name, list(known), n=1, cutoff=_PLAIN))


def import_entry_point(group: str, name: str) -> None:
    """Imports what installed packages have under a name, for what its import defines."""
    for entry in installed(group).get(name, ()):
        _imported(entry)


def _imported(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # whatever the module of a stranger may raise
        raise ExtensionError(
            f"the entry point {entry.name!r} of {entry.group} cannot be imported",
            given=_entry_text(entry),
            hint=f"{type(error).__name__}: {error}",
        ) from error


@lru_cache(maxsize=1)
def _all_installed() -> dict[str, dict[str, tuple[EntryPoint, ...]]]:
    """Our entry points by group and name; looking for them costs about ten milliseconds."""
    found: dict[str, dict[str, tuple[EntryPoint, ...]]] = {}
    everything = entry_points()
    for group in everything.groups:
        if group.startswith("catchment."):
            names = found.setdefault(group, {})
            for entry in everything.select(group=group):
                names[entry.name] = (*names.get(entry.name, ()), entry)
    return found


def installed(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name, as the installed packages have them."""
    return _all_installed().get(group, {})


def look_again() -> None:
    """Looks all names up anew, since packages may have been installed or removed."""
    _all_installed.cache_clear()
    for settled in _LOOKED_UP:
        settled.clear()


def _entry_text(entry: EntryPoint) -> str:
    package = "an unknown package" if entry.dist is None else entry.dist.name
    return f"{entry.value} of {package}"
