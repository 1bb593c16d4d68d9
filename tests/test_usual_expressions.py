"""What is read without sqlglot is read as sqlglot reads it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings

from catchment.errors import QueryError
from catchment.expression.parsing import canonical, parse_in_full
from catchment.expression.usual import usual
from expression_rows import Made, choices, conditions, numbers
from expression_texts import pieces, texts


@settings(max_examples=settings.default.max_examples * 12)
@given(texts | pieces)
@example("a = b = c")
@example("a = b IS NULL")
@example("NOT a IS NULL")
@example("NOT a = b AND c")
@example("NOT NOT a")
@example("a IS NULL = b")
@example("a NOT NULL")
@example("a BETWEEN 1 AND 2 AND b")
@example("a BETWEEN 1 AND 2 IS NULL")
@example("a NOT BETWEEN b + 1 AND c || 'x'")
@example("1 < 2")
@example("1 < v AND 1 < v")
@example("a AND (b AND c) AND (a OR b OR (c OR d))")
@example("a || (b || c) || 'x'")
@example("'a' || 'b'")
@example("'a' 'b'")
@example("-(-3)")
@example("- -3")
@example("--3")
@example("-3 * -v")
@example("-0.0 + -0")
@example("a -1")
@example("a<-1 AND b>=-c AND b=-c AND b<>-c")
@example("a<->b")
@example("a-1-2*3%4/5")
@example("a IN (1, 1.0, 1)")
@example("a NOT IN (1)")
@example("x'ff'")
@example("a.b.c.d.e")
@example("req.date + a.end")
@example("`a`.b")
@example("`a``b`")
@example("tags['a']")
@example("substring(k, -2, 1) LIKE 'a%'")
@example("a LIKE 'x' ESCAPE '!'")
@example("if(a > 1, b) + IF(a, b, c)")
@example("CASE a WHEN 1 THEN 2 WHEN b THEN 3 END")
@example("CASE a END")
@example("a b")
@example("a, b")
@example("")
@example("a AND")
@example("1.")
@example("1.5.2")
@example("a\n+\tb")
@example("a ]")
@example("a OR b AND c OR d")
@example("round(a, (2)) + round(b, 1.5)")
@example("date_trunc('MINUTE', ts) = date_trunc('minute', ts)")
@example("count(*) > 3")
@example("interval + 1")
def test_what_is_read_without_sqlglot_is_read_as_it_reads_it(text: str) -> None:
    found = usual(text)
    if found is not None:
        assert repr(found) == repr(parse_in_full(text)), text


@given(numbers | conditions | choices)
def test_texts_of_every_kind_need_no_sqlglot(made: Made) -> None:
    if "\\" not in made.text:
        assert repr(usual(made.text)) == repr(parse_in_full(made.text))


@pytest.mark.parametrize(
    "text",
    [
        "v BETWEEN 0 AND 4.5 AND NOT k = 'b'",
        "coalesce(i, 0) % 2 = 0 OR upper(k) = 'C'",
        "CASE WHEN v > 2 THEN 'big' WHEN v IS NULL THEN 'none' ELSE 'small' END",
        "`sum(i)` / `count(*)` > 1 AND NOT (abs(`avg(v)` - 2) <= 0.5)",
        "req.n * v + hour(ts)",
        "k || '-' || substring(j, 1, 2)",
    ],
)
def test_what_queries_have_needs_no_sqlglot(text: str) -> None:
    assert repr(usual(text)) == repr(parse_in_full(text))


def test_what_is_nested_deeply_is_left_to_sqlglot() -> None:
    assert usual("(" * 20 + "v" + ")" * 20) is not None
    assert usual("(" * 200 + "v" + ")" * 200) is None
    with pytest.raises(QueryError, match="nested too deeply"):
        canonical("(" * 9000 + "v" + ")" * 9000)
