"""Arrow's types in Spark: results of any type become columns of a DataFrame.

Spark has no unsigned integers, no half floats, and times in microseconds only. What it has not
becomes the smallest type that holds every value.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

from catchment.errors import SchemaError

_AS: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
)
"""Since Spark 4.2 one says of which zone times are; before, they are of UTC."""


def arrow_type(kind: DataType) -> pa.DataType:
    """The type as Arrow has it, of times in UTC; PySparkException, where it has none."""
    made: pa.DataType = to_arrow_type(kind, **_UTC)
    return made


def for_spark(schema: pa.Schema) -> pa.Schema:
    """The columns in types that Spark has.

    >>> for_spark(pa.schema([("n", pa.uint64()), ("t", pa.timestamp("ns"))])).types
    [Decimal128Type(decimal128(20, 0)), TimestampType(timestamp[us])]
    """
    return pa.schema([pa.field(field.name, _type(field.type)) for field in schema])


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark has them; SchemaError, where it has no such type."""
    fields = []
    for field in for_spark(schema):
        try:
            fields += from_arrow_schema(pa.schema([field])).fields
        except PySparkException as error:
            raise SchemaError(
                f"results have a column {field.name!r} of a type that Spark has not",
                given=str(field.type),
                hint="collect them as Arrow with ct.run, or cast the column before",
            ) from error
    return StructType(fields)


def _type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType):
        return _type(kind.value_type)
    if isinstance(kind, pa.TimestampType):
        return pa.timestamp("us", kind.tz)
    if isinstance(kind, pa.DurationType):
        return pa.duration("us")
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if isinstance(kind, pa.ListType):
        return pa.list_(_type(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(inner.name, _type(inner.type)) for inner in kind])
    return _AS.get(kind, kind)
