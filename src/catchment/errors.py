"""Errors that say what is wrong, what was given, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class CatchmentError(Exception):
    """Base of every error Catchment raises on purpose.

    >>> str(QueryError("the window length must be positive", given="0s", hint='try "10s"'))
    'the window length must be positive (given: 0s); try "10s"'
    """

    def __init__(self, what: str, *, given: object = None, hint: str | None = None) -> None:
        self.what = what
        self.given = given
        self.hint = hint
        text = what
        if given is not None:
            text += f" (given: {given})"
        if hint:
            text += f"; {hint}"
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.given, self.hint)


def _rebuild(
    kind: type[CatchmentError], what: str, given: object, hint: str | None
) -> CatchmentError:
    return kind(what, given=given, hint=hint)


class RefusedError(CatchmentError):
    """A peer, a message or a question was turned away, and why."""


class QueryError(CatchmentError, ValueError):
    """A query that cannot mean anything: a bad window, function, name or expression."""


class SqlError(QueryError):
    """SQL text that does not parse, or that asks for what Catchment does not do."""


class JobError(CatchmentError, ValueError):
    """A job file that is not well formed."""


class SchemaError(CatchmentError, ValueError):
    """Events whose columns do not fit the queries."""


class DataError(CatchmentError, ValueError):
    """A bad row, when bad rows were asked to be fatal."""


class SourceError(CatchmentError, OSError):
    """A source that cannot be read: not there, not reachable, not what it was said to be."""


class UnreachableError(SourceError):
    """A source that is not there now, or does not answer: nothing can be said of its events."""


class SinkError(CatchmentError, OSError):
    """A sink that refuses results; they are kept and offered again."""


class StateError(CatchmentError, ValueError):
    """A plan or snapshot that cannot be read back."""


class LimitError(CatchmentError, MemoryError):
    """A limit that was set is reached, and all that is held is needed."""


class ExtensionError(CatchmentError, ImportError):
    """An entry point of an installed package that cannot be used, and whose it is."""


class MissingPackageError(CatchmentError, ImportError):
    """What was asked for needs a package that is not installed, and which extra brings it."""


EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "confluent_kafka": "kafka",
    "fastavro": "kafka",
    "paho": "mqtt",
    "psycopg": "postgres",
    "cramjam": "receivers",
    "opentelemetry": "receivers",
    "prometheus_client": "metrics",
    "starlette": "ui",
    "uvicorn": "ui",
    "matplotlib": "plots",
    "hypothesis": "testing",
}
"""The packages that not everybody needs, and the extra of ours that installs each."""


def missing_package(error: ModuleNotFoundError) -> MissingPackageError | None:
    """What to tell a person whom a package fails; None where it is none of our extras.

    >>> str(missing_package(ModuleNotFoundError("no", name="paho.mqtt")))
    "a package is not installed (given: paho); pip install 'catchment[mqtt]'"
    >>> missing_package(ModuleNotFoundError("no", name="spam"))
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return MissingPackageError(
        "a package is not installed",
        given=package,
        hint=f"pip install 'catchment[{EXTRAS[package]}]'",
    )


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Says what needs a package, where an import meanwhile finds that it is not installed.

    >>> with needing("a plot"):
    ...     raise ModuleNotFoundError("no", name="matplotlib")
    Traceback (most recent call last):
    ...
    catchment.errors.MissingPackageError: a plot needs a package that is not installed \
(given: matplotlib); pip install 'catchment[plots]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        found = missing_package(error)
        if found is None:
            raise
        said = f"{what} needs a package that is not installed"
        raise MissingPackageError(said, given=found.given, hint=found.hint) from error


def did_you_mean(
    word: str, known: Iterable[str], otherwise: str = "", likeness: float = 0.5
) -> str:
    """A hint naming the closest known word, if one is so much like it.

    >>> did_you_mean("windw", ["window", "where"])
    "did you mean 'window'?"
    >>> did_you_mean("K", ["k", "KK"])
    "did you mean 'k'? names are told apart by case"
    """
    options = list(known)
    same = [option for option in options if option.casefold() == word.casefold() and option != word]
    if same:
        return f"did you mean {same[0]!r}? names are told apart by case"
    close = difflib.get_close_matches(word, options, n=1, cutoff=likeness)
    if close:
        return f"did you mean {close[0]!r}?"
    return otherwise or "known: " + ", ".join(sorted(options))
