"""The functions. A new one is one file here and one line below."""

from catchment.functions import (
    distincts,
    extremes,
    products,
    quantiles,
    sums,
    variances,
)
from catchment.functions.base import Function, function_of, make, names, register_function
from catchment.functions.base import builder as _builder
from catchment.functions.user import function

BUILT_IN = (sums, extremes, products, variances, quantiles, distincts)

avg = _builder(sums.Avg())
count = _builder(sums.Count())
sum = _builder(sums.Sum())
min = _builder(extremes.Min())
max = _builder(extremes.Max())
range = _builder(extremes.Range())
first = _builder(extremes.First())
last = _builder(extremes.Last())
product = _builder(products.Product())
geometric_mean = _builder(products.GeometricMean())
variance = _builder(variances.Variance())
variance_pop = _builder(variances.VariancePop())
stddev = _builder(variances.Stddev())
stddev_pop = _builder(variances.StddevPop())
quantile = _builder(quantiles.Quantile())
median = _builder(quantiles.Median())
mode = _builder(quantiles.Mode())
count_distinct = _builder(distincts.CountDistinct())
approx_count_distinct = _builder(distincts.ApproxCountDistinct())
approx_quantile = _builder(distincts.ApproxQuantile())
approx_median = _builder(distincts.ApproxMedian())

__all__ = [
    "BUILT_IN",
    "Function",
    "approx_count_distinct",
    "approx_median",
    "approx_quantile",
    "avg",
    "count",
    "count_distinct",
    "first",
    "function",
    "function_of",
    "geometric_mean",
    "last",
    "make",
    "max",
    "median",
    "min",
    "mode",
    "names",
    "product",
    "quantile",
    "range",
    "register_function",
    "stddev",
    "stddev_pop",
    "sum",
    "variance",
    "variance_pop",
]
