"""Values as integers, so that one search serves all types: numbers in the same order, texts coded.

All NaNs are one value, the greatest, as sorting has it; the two zeros are one value.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from catchment.operators.ragged import Array, Ints
from catchment.operators.values import objects

_SIGN = np.int64(-(1 << 63))


def to_ints(values: Array) -> Ints:
    """Integers that are ordered as the values are.

    >>> to_ints(np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf, np.nan])).argsort().tolist()
    [0, 1, 2, 3, 4, 5, 6]
    """
    if values.dtype == np.int64:
        return values
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = plain.view(np.int64)
    return np.where(bits < 0, _SIGN - bits, bits)


def to_values(ints: Ints, floats: bool) -> Array:
    """The inverse of `to_ints`.

    >>> to_values(to_ints(np.array([-1.5, 0.0, np.nan])), floats=True).tolist()
    [-1.5, 0.0, nan]
    """
    if not floats:
        return ints
    return np.where(ints < 0, _SIGN - ints, ints).view(np.float64)


class TextCodes:
    """Texts as integers, in the order in which they came.

    >>> codes = TextCodes(["b"])
    >>> codes.codes_of(["a", "b"]).tolist(), codes.ranks.tolist(), codes.listed.tolist()
    ([1, 0], [1, 0], ['b', 'a'])
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._codes = {text: code for code, text in enumerate(texts)}

    def __len__(self) -> int:
        return len(self._codes)

    def codes_of(self, texts: Iterable[str]) -> Ints:
        """The integers that stand for texts; new ones are given theirs."""
        codes = self._codes
        return np.array([codes.setdefault(text, len(codes)) for text in texts], np.int64)

    @property
    def listed(self) -> Array:
        """The texts, by their integers."""
        return objects([*self._codes])

    @property
    def ranks(self) -> Ints:
        """The place of each text in the order of all."""
        ranks = np.empty(len(self), np.int64)
        ranks[np.argsort(self.listed)] = np.arange(len(self))
        return ranks
