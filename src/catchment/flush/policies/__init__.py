"""The sizes of caches that flush policies go by. A new one is one file here and one line below."""

from catchment.flush.policies import bounded as bounded
from catchment.flush.policies import empirical as empirical
from catchment.flush.policies import nonuniform as nonuniform
from catchment.flush.policies import optimistic as optimistic
from catchment.flush.policies import pessimistic as pessimistic
from catchment.flush.policies import uniform as uniform
