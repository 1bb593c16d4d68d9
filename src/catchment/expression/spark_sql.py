"""sqlglot's dialect Spark: expressions parsed to its syntax trees, and these written as text."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

_BETWEEN_WORDS = (
    ("POSITION", "locate", ("substr", "this")),
    ("SUBSTRING", "substring", ("this", "start", "length")),
    ("SUBSTR", "substring", ("this", "start", "length")),
)
"""Functions whose arguments may stand between words, position('a' IN s) and substring(s FROM 2 FOR
3): what they are called, and sqlglot's names of their arguments in order."""


def _by_name(name: str, args: tuple[str, ...], parse: Any, parser: Any) -> exp.Anonymous:
    parsed = parse(parser)
    given = [parsed.args[arg] for arg in args if parsed.args.get(arg) is not None]
    return exp.Anonymous(this=name, expressions=given)


class ByName(Spark):
    """Spark's grammar in which every function keeps the name and the arguments it was given."""

    class Parser(Spark.parser_class):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in Spark.parser_class.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")
        } | {
            word: partial(_by_name, name, args, Spark.parser_class.FUNCTION_PARSERS[word])
            for word, name, args in _BETWEEN_WORDS
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser
            for name, parser in Spark.parser_class.NO_PAREN_FUNCTION_PARSERS.items()
            if name != "ANY"  # an aggregate
        }


_SPARK, _BY_NAME = Spark(), ByName()
"""Made once: by its name, sqlglot would make one for every text."""
KEYWORDS = frozenset(word.lower() for word in Spark.tokenizer_class.KEYWORDS)
"""Words that may mean something else than a name."""


def syntax_of(text: str) -> Any:
    """The statement that selects an expression in parentheses."""
    # Inside SELECT ( ) a column may be called like a statement: load, comment, set.
    return sqlglot.parse_one(f"SELECT ({text}\n)", dialect=_BY_NAME)


def sql_of(node: Any) -> str:
    """A syntax tree as text again, much as it was written."""
    text: str = node.sql(dialect=_SPARK, normalize_functions=False, comments=False)
    return text
