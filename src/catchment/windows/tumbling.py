"""Windows of one length, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.duration import Duration, micros, show
from catchment.model.window import OnePeriod, register, window_builder
from catchment.windows.checks import positive
from catchment.windows.wording import with_offset


@register
@dataclass(frozen=True, slots=True)
class Tumbling(OnePeriod):
    kind = "tumbling"

    def describe(self) -> str:
        return f"tumbling({show(self.length)}{with_offset(self.offset)})"


@window_builder
def tumbling(length: Duration, *, offset: Duration = "0s") -> Tumbling:
    """Windows `[k * length + offset, (k + 1) * length + offset)`, side by side.

    `length` is how long they are, `offset` by how much they are shifted against 1970.

    >>> tumbling("10s", offset="2s")
    Tumbling(length=10000000, slide=10000000, offset=2000000)

    Raises QueryError for a length that is no duration, or not positive.
    """
    size = positive(micros(length, "window length"), "window length", length)
    return Tumbling(size, size, micros(offset, "window offset") % size)
