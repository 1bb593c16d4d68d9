"""Ways in which bytes on a disk are damaged."""

from __future__ import annotations

import random


def damaged(data: bytes, dice: random.Random, way: str) -> bytes:
    """The bytes after one of the ways, at a random place; the same where it is another word."""
    at = dice.randrange(len(data) + 1)
    end = dice.randint(at, len(data))
    if way == "truncate":
        data = data[:at]
    elif way == "empty":
        data = b""
    elif way == "flip" and data:
        at %= len(data)
        data = data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]
    elif way == "double":
        place = dice.randrange(len(data) + 1)
        data = data[:place] + data[at:end] + data[place:]
    elif way == "zero":
        data = data[:at] + bytes(end - at) + data[end:]
    return data
