"""The operators. A new one is one file here and one line below."""

from catchment.operators import count as count
from catchment.operators import digest as digest
from catchment.operators import ends as ends
from catchment.operators import extreme as extreme
from catchment.operators import hll as hll
from catchment.operators import kll as kll
from catchment.operators import moments as moments
from catchment.operators import product as product
from catchment.operators import sort as sort
from catchment.operators import sum as sum
from catchment.operators import user as user
from catchment.operators.base import OPERATORS as OPERATORS
from catchment.operators.base import Computed as Computed
from catchment.operators.base import Input as Input
from catchment.operators.base import Operator as Operator
from catchment.operators.base import OperatorRef as OperatorRef
from catchment.operators.base import operator_class as operator_class
from catchment.operators.base import register_operator as register_operator
from catchment.operators.grouping import Grouping as Grouping
from catchment.operators.grouping import grouped as grouped
from catchment.operators.ragged import Field as Field
from catchment.operators.ragged import Fields as Fields
from catchment.operators.ragged import Ragged as Ragged
