"""What several window types say of themselves alike, in `describe`."""

from __future__ import annotations

from catchment.model.duration import show
from catchment.model.window import Reading


def with_offset(offset: int) -> str:
    """The offset of a window, as one more argument; nothing where there is none."""
    return f", offset={show(offset)}" if offset else ""


def with_reading(reading: Reading) -> str:
    """The reading of a window, as one more argument; nothing where it is the usual one."""
    return "" if reading == "global" else f", reading={reading}"
