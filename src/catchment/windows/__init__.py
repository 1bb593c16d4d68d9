"""The window types. A new one is one file here and one line below."""

from catchment.windows.between import between
from catchment.windows.count import count_sliding, count_tumbling
from catchment.windows.cut import cut
from catchment.windows.fixed import fixed
from catchment.windows.session import session
from catchment.windows.sliding import sliding
from catchment.windows.tumbling import tumbling

BUILDERS = {
    builder.__name__: builder
    for builder in (
        tumbling,
        sliding,
        fixed,
        session,
        cut,
        between,
        count_tumbling,
        count_sliding,
    )
}

__all__ = [
    "BUILDERS",
    "between",
    "count_sliding",
    "count_tumbling",
    "cut",
    "fixed",
    "session",
    "sliding",
    "tumbling",
]
