"""The functions. A new one is one file here and one line in `built_in.py`."""

from catchment.functions.base import FUNCTIONS as FUNCTIONS
from catchment.functions.base import Function as Function
from catchment.functions.base import function_of as function_of
from catchment.functions.base import make as make
from catchment.functions.base import names as names
from catchment.functions.base import register_function as register_function
from catchment.functions.built_in import *  # noqa: F403
from catchment.functions.user import function as function
