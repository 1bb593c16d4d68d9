"""Readers of Arrow get copies, so that their threads never hold memory of Python."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catchment.arrow_memory import arrow_input

SOURCES = Path(__file__).resolve().parent.parent / "src" / "catchment"


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1000])
def test_a_copy_has_the_bytes_and_holds_no_object(data: bytes) -> None:
    copied = bytearray(data)
    before = sys.getrefcount(copied)
    source = arrow_input(copied)  # type: ignore[arg-type]  # an object that is no constant
    assert sys.getrefcount(copied) == before
    assert source.read() == data


def test_parquet_is_read_from_it() -> None:
    written = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2]}), written)
    assert pq.read_table(arrow_input(written.getvalue())).to_pydict() == {"a": [1, 2]}


def test_nobody_hands_memory_of_python_to_readers() -> None:
    """Files that readers of Arrow get are made in one place."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("BufferReader", "PythonFile"):
                found.append(path.name)
    assert set(found) == {"arrow_memory.py"}
