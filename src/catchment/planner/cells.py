"""Ranges of one term that lie apart, in order, each with whatever is in just that range.

    site = 'a'        v < 3 AND k = 'x'   v < 3 AND k = 'y'    3 <= v < 7
    ['a']             [.......... 3) two conditions            [3 ......... 7)

To look for a range, and to add one, takes a time that grows with the logarithm of their number.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Generic, TypeVar

from catchment.expression import Range, Ranges

_BLOCK = 1024
"""Ranges in a block before it is halved: to insert into a list moves all that follows."""
T = TypeVar("T")


class Cells(Generic[T]):
    """What is held in ranges that lie apart."""

    def __init__(self, block: int = _BLOCK) -> None:
        self._most = block
        self._kind = ""
        self._held: dict[Range, list[T]] = {}
        self._blocks: list[list[Range]] = [[]]
        self._heads: list[Range] = []
        """The first range of each block but the first."""

    def lookup(self, ranges: Ranges) -> list[T] | None:
        """What is in these ranges; None where one of them meets another range only in part.

        >>> cells: Cells[str] = Cells()
        >>> three, nine = ((1, 3, 0), (1, 3, 1)), ((1, 9, 0), (1, 9, 1))
        >>> cells.add(Ranges("number", (three,)), "v = 3")
        >>> cells.lookup(Ranges("number", (three, nine))), cells.lookup(Ranges("number", (nine,)))
        (['v = 3'], [])
        >>> cells.lookup(Ranges("number", (((0,), (1, 4, 0)),))) is None
        True
        """
        if ranges.kind != self._kind and ranges.kind and self._kind:
            return None
        found: list[T] = []
        for part in ranges.parts:
            held = self._held.get(part)
            if held is not None:
                found += held
            elif self._meets(part):
                return None
        return found

    def add(self, ranges: Ranges, item: T) -> None:
        """Puts something into ranges that meet others in full or not at all."""
        self._kind = self._kind or ranges.kind
        for part in ranges.parts:
            if part not in self._held:
                self._insert(part)
            self._held.setdefault(part, []).append(item)

    def _meets(self, part: Range) -> bool:
        """Whether a range meets one that is here: the last that begins before its end."""
        low, high = part
        number = bisect_left(self._heads, (high,))
        block = self._blocks[number]
        place = bisect_left(block, (high,))
        return place > 0 and block[place - 1][1] > low

    def _insert(self, part: Range) -> None:
        number = bisect_left(self._heads, part)
        block = self._blocks[number]
        block.insert(bisect_left(block, part), part)
        if len(block) > self._most:
            half = len(block) // 2
            self._blocks[number : number + 1] = [block[:half], block[half:]]
            self._heads.insert(number, block[half])
