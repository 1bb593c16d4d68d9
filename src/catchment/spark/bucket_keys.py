"""Grouping keys that Spark's hash partitioning puts into partitions 0, 1, ... each by itself."""

from __future__ import annotations

from itertools import count

_SEED = 42
_WORD = 0xFFFFFFFF


def labels(buckets: int) -> tuple[int, ...]:
    """A key for each bucket; two of them in one partition would leave a core idle.

    >>> [place(label, 3) for label in labels(3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(place(key, buckets), key)
        if len(found) == buckets:
            return tuple(found[number] for number in range(buckets))
    raise AssertionError  # `count` does not end


def place(key: int, partitions: int) -> int:
    """The partition of an int: Murmur3 of its four bytes, as a signed word, modulo."""
    mixed = _rotated(key * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    state = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    state ^= 4
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    state ^= state >> 16
    signed = state - (1 << 32) if state >> 31 else state
    return signed % partitions


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
