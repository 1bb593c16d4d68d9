"""A function of three plain ones: the values one after the other, as text."""

import pyarrow as pa

import catchment as ct

spelled = ct.function(
    "spelled",
    lift=str,
    combine=lambda one, other: one + other,
    lower=str,
    result=pa.string(),
    commutative=False,
)
