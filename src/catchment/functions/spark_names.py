"""The aggregates of Spark 4.3 by name: how each is written here, or what to do instead.

The reference of functions is made from these tables (`scripts/reference.py`), and
`tests/test_spark_names.py` holds them against what SQL text really gives.
"""

from __future__ import annotations

from collections.abc import Mapping

WRITTEN: Mapping[str, str] = {
    "any": "any(t)",
    "any_value": "any_value(v)",
    "approx_count_distinct": "approx_count_distinct(v)",
    "approx_percentile": "approx_percentile(v, 0.5)",
    "approx_top_k": "approx_top_k(v, 5)",
    "array_agg": "array_agg(v)",
    "avg": "avg(v)",
    "bit_and": "bit_and(n)",
    "bit_or": "bit_or(n)",
    "bit_xor": "bit_xor(n)",
    "bool_and": "bool_and(t)",
    "bool_or": "bool_or(t)",
    "collect_list": "collect_list(v)",
    "collect_set": "collect_set(v)",
    "corr": "corr(v, n)",
    "count": "count(*)",
    "count_if": "count_if(v > 0)",
    "covar_pop": "covar_pop(v, n)",
    "covar_samp": "covar_samp(v, n)",
    "every": "every(t)",
    "first": "first(v)",
    "first_value": "first_value(v)",
    "histogram_numeric": "histogram_numeric(v, 20)",
    "hll_sketch_agg": "hll_sketch_agg(n)",
    "kll_sketch_agg_bigint": "kll_sketch_agg_bigint(n)",
    "kll_sketch_agg_double": "kll_sketch_agg_double(v)",
    "kll_sketch_agg_float": "kll_sketch_agg_float(v)",
    "kurtosis": "kurtosis(v)",
    "last": "last(v)",
    "last_value": "last_value(v)",
    "listagg": "listagg(s, ', ')",
    "max": "max(v)",
    "max_by": "max_by(v, n)",
    "mean": "mean(v)",
    "median": "median(v)",
    "min": "min(v)",
    "min_by": "min_by(v, n)",
    "mode": "mode(v)",
    "percentile": "percentile(v, 0.5)",
    "percentile_approx": "percentile_approx(v, 0.5)",
    "percentile_cont": "percentile_cont(0.5) WITHIN GROUP (ORDER BY v)",
    "percentile_disc": "percentile_disc(0.5) WITHIN GROUP (ORDER BY v)",
    "product": "product(v)",
    "regr_avgx": "regr_avgx(v, n)",
    "regr_avgy": "regr_avgy(v, n)",
    "regr_count": "regr_count(v, n)",
    "regr_intercept": "regr_intercept(v, n)",
    "regr_r2": "regr_r2(v, n)",
    "regr_slope": "regr_slope(v, n)",
    "regr_sxx": "regr_sxx(v, n)",
    "regr_sxy": "regr_sxy(v, n)",
    "regr_syy": "regr_syy(v, n)",
    "skewness": "skewness(v)",
    "some": "some(t)",
    "std": "std(v)",
    "stddev": "stddev(v)",
    "stddev_pop": "stddev_pop(v)",
    "stddev_samp": "stddev_samp(v)",
    "string_agg": "string_agg(s, ', ')",
    "sum": "sum(v)",
    "theta_sketch_agg": "theta_sketch_agg(n)",
    "try_avg": "try_avg(v)",
    "try_sum": "try_sum(v)",
    "var_pop": "var_pop(v)",
    "var_samp": "var_samp(v)",
    "variance": "variance(v)",
}
"""Of numbers v and n (whole), a truth t and a text s."""

_MERGED = "sketches are made of values here, and merged by Spark; write "
_DISTINCT = _MERGED + "theta_sketch_agg(v) or hll_sketch_agg(v)"
_QUANTILE = _MERGED + "kll_sketch_agg_double(v), or approx_percentile(v, 0.5)"
_TUPLE = "sketches of values with sums are not made; group by the value too, with sum(x)"
_TOP = "its state is Spark's own; write approx_top_k(v, k), or top_k(v, k), which is exact"

REFUSED: Mapping[str, str] = {
    "approx_top_k_accumulate": _TOP,
    "approx_top_k_combine": _TOP,
    "bitmap_and_agg": "write bit_and of whole numbers",
    "bitmap_construct_agg": "write collect_set(v), or count(DISTINCT v)",
    "bitmap_or_agg": "write bit_or of whole numbers",
    "count_min_sketch": "group by the value too, and count",
    "hll_union_agg": _DISTINCT,
    "kll_merge_agg_bigint": _QUANTILE,
    "kll_merge_agg_double": _QUANTILE,
    "kll_merge_agg_float": _QUANTILE,
    "schema_of_variant_agg": "events have columns of their own; name them",
    "theta_intersection_agg": _DISTINCT,
    "theta_union_agg": _DISTINCT,
    "tuple_intersection_agg_double": _TUPLE,
    "tuple_intersection_agg_integer": _TUPLE,
    "tuple_sketch_agg_double": _TUPLE,
    "tuple_sketch_agg_integer": _TUPLE,
    "tuple_union_agg_double": _TUPLE,
    "tuple_union_agg_integer": _TUPLE,
}
"""Aggregates of Spark that are not here, and what to do instead."""

APPROXIMATE = frozenset(
    (
        "approx_count_distinct",
        "approx_percentile",
        "approx_top_k",
        "histogram_numeric",
        "hll_sketch_agg",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "percentile_approx",
        "theta_sketch_agg",
    )
)
