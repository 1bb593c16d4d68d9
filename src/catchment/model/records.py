"""The codec of records: all that is kept, sent or handed to workers, as bytes and back.

A record is a frozen msgspec Struct or dataclass, or a list or mapping of plain values. Reading
checks every field against its type, so what a module gets is what its record says, or an error
whose sentence names what cannot be read:

    record --- encode ---> JSON         --- decode(kind, ...) ---> record, or StateError
    record --- pack -----> MessagePack  --- unpack(kind, ...) ---> record, or StateError
    record --- plain ----> JSON objects --- convert(kind, ...) --> record, or StateError

What people, Spark or other programs read is JSON; what holds bytes (logs, state, what nodes say of
count windows) is MessagePack, because JSON would make bytes a third longer. The third pair is for
the edges where somebody else makes the text: Spark's offsets, the command line's `--json`, YAML.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

import msgspec

from catchment.errors import CatchmentError, RefusedError, StateError

_T = TypeVar("_T")

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
Wrong = Callable[[str, str], CatchmentError]
"""Makes the error to raise, of what cannot be read and why."""


_DecHook = Callable[[type, Any], Any]
_decoders: dict[tuple[Any, Any, _DecHook | None], Any] = {}
_learning = Lock()


def _decoder(maker: Any, kind: Any, hook: _DecHook | None = None) -> Any:
    """The decoder of a kind of record, which is made once.

    msgspec learns what the fields of a class are when it first needs them. A second thread that
    asks meanwhile would use what is half learnt, and the process would crash: one at a time learns.
    """
    found = _decoders.get((maker, kind, hook))
    if found is None:
        with _learning:
            found = _decoders[maker, kind, hook] = maker(kind, dec_hook=hook)
    return found


def unreadable(what: str, why: str) -> CatchmentError:
    """The error for what this version wrote itself."""
    hint = "it was changed by hand, or by another version"
    return StateError(f"{what} cannot be read", given=why[:300], hint=hint)


def refused(what: str, why: str) -> CatchmentError:
    """The error for a record of another process that cannot be read."""
    return RefusedError(f"{what} cannot be understood", given=why[:300])


def encode(record: object) -> bytes:
    """A record as JSON text."""
    return msgspec.json.encode(record)


def decode(kind: type[_T], data: bytes | msgspec.Raw, what: str, wrong: Wrong = unreadable) -> _T:
    """The record that JSON text holds; `what` names it in the error.

    >>> decode(dict[str, int], b'{"a": 1}', "the counts")
    {'a': 1}
    >>> decode(dict[str, int], b'{"a": "b"}', "the counts")
    Traceback (most recent call last):
    ...
    catchment.errors.StateError: the counts cannot be read (given: Expected `int`, got `str` - at \
`$[...]`); it was changed by hand, or by another version
    """
    try:
        found: _T = _decoder(msgspec.json.Decoder, kind).decode(data)
    except _UNREADABLE as error:
        raise wrong(what, str(error)) from error
    return found


def pack(record: object, hook: Callable[[Any], Any] | None = None) -> bytes:
    """A record as MessagePack; `hook` turns what MessagePack does not know into what it does."""
    return msgspec.msgpack.encode(record, enc_hook=hook)


def unpack(
    kind: type[_T],
    data: bytes | msgspec.Raw,
    what: str,
    wrong: Wrong = unreadable,
    hook: _DecHook | None = None,
) -> _T:
    """The record that MessagePack holds; `hook` undoes what the hook of `pack` did.

    >>> unpack(tuple[int, bytes], pack((1, b"a")), "the entry")
    (1, b'a')
    """
    try:
        found: _T = _decoder(msgspec.msgpack.Decoder, kind, hook).decode(data)
    except _UNREADABLE as error:
        raise wrong(what, str(error)) from error
    return found


def plain(record: object) -> Any:
    """A record as objects of JSON."""
    return msgspec.to_builtins(record, str_keys=True)


def convert(kind: type[_T], given: object, what: str, wrong: Wrong = unreadable) -> _T:
    """The record that objects of JSON hold; `what` names it in the error."""
    _decoder(msgspec.msgpack.Decoder, kind)  # so that its fields are known
    try:
        return msgspec.convert(given, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise wrong(what, str(error)) from error


def check_format(what: str, found: int, format: int, older: str) -> None:
    """Refuses what was written in another format; `older` says what to do with an older one.

    >>> check_format("the plan", 1, 2, "plan again")
    Traceback (most recent call last):
    ...
    catchment.errors.StateError: the plan was written by an older version (given: format 1); this \
version reads format 2 only: plan again
    """
    if found != format:
        age, hint = ("a newer", "upgrade it") if found > format else ("an older", older)
        raise StateError(
            f"{what} was written by {age} version",
            given=f"format {found}",
            hint=f"this version reads format {format} only: {hint}",
        )
