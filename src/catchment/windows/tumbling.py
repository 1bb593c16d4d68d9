"""Windows of one length, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.duration import Duration, micros, show
from catchment.model.window import OnePeriod, register, window_builder
from catchment.windows.checks import positive


@register
@dataclass(frozen=True, slots=True)
class Tumbling(OnePeriod):
    kind = "tumbling"

    def describe(self) -> str:
        shift = f", offset={show(self.offset)}" if self.offset else ""
        return f"tumbling({show(self.length)}{shift})"


@window_builder
def tumbling(length: Duration, *, offset: Duration = "0s") -> Tumbling:
    """Windows `[k * length + offset, (k + 1) * length + offset)`.

    >>> tumbling("10s", offset="2s")
    Tumbling(length=10000000, slide=10000000, offset=2000000)
    """
    size = positive(micros(length, "window length"), "window length", length)
    return Tumbling(size, size, micros(offset, "window offset") % size)
