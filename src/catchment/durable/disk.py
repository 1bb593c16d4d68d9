"""What a node needs of a disk: small notes, and logs whose entries are safe once written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from catchment.durable.log import LostEntries
from catchment.errors import StateError


def damaged(name: str, why: str) -> StateError:
    """What is said of a folder that lacks something, or holds what cannot be read."""
    return StateError(
        "a file of the node's folder is damaged",
        given=f"{name}: {why}",
        hint="restore the newest copy of the folder",
    )


class Log(Protocol):
    """Numbered entries in order, forgotten from the front."""

    def append(self, number: int, body: bytes) -> None:
        """Adds an entry; once this returns, no crash loses it. Numbers only grow."""

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """All entries there are."""

    def read(self, number: int) -> bytes:
        """One entry."""

    def gap(self, after: int) -> LostEntries | None:
        """The first entries after a number that were safe, were not trimmed and cannot be read."""

    def rewind(self, number: int) -> None:
        """Forgets the entries after this one, readable or not: they are appended anew."""

    def trim(self, number: int) -> None:
        """Forgets entries up to this one; some of them may stay for a while."""

    def clear(self) -> None:
        """Forgets all."""

    @property
    def last(self) -> int | None:
        """The number of the last entry ever written."""

    @property
    def nbytes(self) -> int:
        """How much it takes up."""


class Disk(Protocol):
    """A node's own storage."""

    def log(self, name: str) -> Log:
        """The log of a name; made when it is first asked for."""

    def put(self, name: str, data: bytes) -> None:
        """Keeps a note; it is replaced whole, or not at all."""

    def get(self, name: str) -> bytes | None:
        """A note, if it was kept."""

    def damage(self) -> list[str]:
        """What was found on it that cannot be read, a sentence for each."""
