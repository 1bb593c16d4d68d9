"""The window types. A new one is one file here and one line below."""

from catchment.model.window import BUILDERS as BUILDERS
from catchment.windows.between import between as between
from catchment.windows.count import count_sliding as count_sliding
from catchment.windows.count import count_tumbling as count_tumbling
from catchment.windows.count import count_within as count_within
from catchment.windows.cumulate import cumulate as cumulate
from catchment.windows.cut import cut as cut
from catchment.windows.fixed import fixed as fixed
from catchment.windows.session import session as session
from catchment.windows.sliding import sliding as sliding
from catchment.windows.tumbling import tumbling as tumbling
