"""Syntax trees are written as sqlglot's generator writes them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from sqlglot import exp

from catchment.errors import SqlError
from catchment.expression import sql_of
from catchment.sqltext.joins import with_lookups
from catchment.sqltext.syntax import parsed, statement_of
from catchment.sqltext.writing import text_of
from expression_texts import texts

pytest.importorskip("duckdb")

from sql_questions import Questions


def check(select: exp.Expression) -> None:
    """Every part of a statement is written as sqlglot does."""
    for node in select.walk():
        assert text_of(node) == sql_of(with_lookups(node)), repr(node)


@settings(max_examples=settings.default.max_examples * 2)
@given(texts)
@example("- -v")
@example("-(-3)")
@example("`a``b` || `a b`")
@example("'it\\'s' || 'a\\n'")
@example("DATE '2026-01-01'")
@example("count(DISTINCT a, b) FILTER (WHERE c IN (1, 2) AND NOT d LIKE 'x')")
@example("a.b.c.d.e")
@example("count(*)")
@example("a NOT IN (1) AND b NOT BETWEEN 1 AND 2 OR c IS NOT NULL")
@example("CAST(a AS VARCHAR(3)) || CAST(b AS TEXT)")
@example("percentile_cont(0.5) WITHIN GROUP (ORDER BY v DESC)")
@example("max_by(a, b) IGNORE NULLS + tags['a'] + items[0].b")
@example("`select` + load + `é`")
def test_expressions_are_written_as_sqlglot_writes_them(text: str) -> None:
    try:
        select = parsed(f"SELECT {text}")
    except SqlError:
        return
    check(select)


@pytest.mark.parametrize("seed", range(3))
def test_statements_are_written_as_sqlglot_writes_them(seed: int) -> None:
    draw = Questions(Random(seed))
    for _ in range(8):
        check(statement_of(draw.question().sql, {"rooms": "rooms.parquet"}).select)


def test_names_stand_for_what_has_one() -> None:
    tree = parsed("SELECT sum(a) / CASE WHEN sum(b) > 1 THEN 2 END").expressions[0]
    alike = parsed("SELECT sum(a) / CAST(sum(b) AS INT)").expressions[0]

    def named(node: exp.Expression) -> str | None:
        return text_of(node).replace("a", "``") if isinstance(node, exp.Anonymous) else None

    assert text_of(tree, named) == "`sum(````)` / CASE WHEN `sum(b)` > 1 THEN 2 END"
    assert text_of(alike, named) == "`sum(````)` / CAST(`sum(b)` AS INT)"
    assert text_of(tree) == "sum(a) / CASE WHEN sum(b) > 1 THEN 2 END"
