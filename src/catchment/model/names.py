"""Names that users choose, as names of files: no two names ever become one.

In comes any text, such as the name of a query; out comes the name of a file or folder that is
safe on every file system and in every address. The mapping is injective, even where a file system
ignores case or normalizes Unicode, because a file name is made of lower-case ASCII only:

    a-z 0-9 _ - .      stand for themselves
    @xx                is one byte of UTF-8, in lower-case hexadecimal
    @@<digest>         ends the name of a long text, after the beginning of its escaped form

`@` is the mark because, unlike `%`, no address is decoded at it. A dot, an underscore or a hyphen
at the beginning is escaped (hidden files, `..`, options of commands), a dot at the end is (Windows
drops it), and so is the first letter of the names that Windows keeps for devices.
"""

from __future__ import annotations

import hashlib
import re

MARK = "@"
LONGEST = 160
"""Characters of a file name at most: room is left for suffixes and for temporary files beside it,
since most file systems take 255 bytes."""
_DIGEST = 40
"""Hexadecimal digits (160 bits) by which long names are told apart."""
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-.")
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9])(\.|$)")


def file_name(name: str) -> str:
    """The name of the file or folder that stands for a name.

    >>> file_name("speed.p95"), file_name("Speed"), file_name("a/b"), file_name("..")
    ('speed.p95', '@53peed', 'a@2fb', '@2e@2e')
    >>> file_name(""), file_name("nul"), len(file_name("long " * 100))
    ('@', '@6eul', 160)
    """
    pieces = [chr(byte) if byte in _PLAIN else _escape(byte) for byte in _encoded(name)]
    if not pieces:
        return MARK
    if pieces[0] in "._-" or _DEVICES.match(name):
        pieces[0] = _escape(ord(pieces[0]))
    if pieces[-1] == ".":
        pieces[-1] = _escape(ord("."))
    text = "".join(pieces)
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(_encoded(name)).hexdigest()[:_DIGEST]
    tail = f"{MARK}{MARK}{digest}"
    return f"{_beginning(pieces, LONGEST - len(tail))}{tail}"


def _encoded(name: str) -> bytes:
    # Python's texts may hold lone surrogates, which are no characters but are told apart, too.
    return name.encode("utf-8", "surrogatepass")


def _escape(byte: int) -> str:
    return f"{MARK}{byte:02x}"


def _beginning(pieces: list[str], room: int) -> str:
    """As many whole pieces as there is room for, filled up so that long names are all as long."""
    text = ""
    for piece in pieces:
        if len(text) + len(piece) > room:
            break
        text += piece
    return text.ljust(room, "_")
