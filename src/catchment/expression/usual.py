"""Expressions as most are written, read without sqlglot.

Columns, constants, arithmetic, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, CASE and the
functions that mean what they are called. sqlglot takes some hundred microseconds for such a text,
which is most of the time from the text of a query to a plan; this takes some ten. It says nothing
about mistakes: whatever is not of this form is left to sqlglot, which reads the same from all that
is (`tests/test_usual_expressions.py` holds both against each other).
"""

from __future__ import annotations

import re

from catchment.errors import QueryError
from catchment.expression.building import between, binary, concat, is_in, junction, negate
from catchment.expression.named import FUNCTIONS, called
from catchment.expression.nodes import RESERVED, Call, Column, Literal, Node
from catchment.expression.spark_sql import KEYWORDS

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(
    r"\s*(?:"
    rf"({_NAME}(?:\.{_NAME}){{0,3}})(?![A-Za-z0-9_.\[`'\"$@])"
    r"|`([^`\\]+)`(?![`.\[])"
    r"|([0-9]{1,18}(?:\.[0-9]{1,15})?)(?![A-Za-z0-9_.])"
    r"|'([^'\\]*)'(?!['\"])"
    r"|([(),]|[=<>!|+\-*/%&^~]+)"
    r"|\Z)",
    re.ASCII,
)
_COMPARISONS = {sign: sign for sign in ("=", "<>", "<", "<=", ">", ">=")} | {"==": "=", "!=": "<>"}
_SIGNS = frozenset(["(", ")", ",", "||", "+", "-", "*", "/", "%", *_COMPARISONS])
_WORDS = frozenset(("and", "or", "not", "is", "null", "in", "between", "like", "true", "false"))
_WORDS |= frozenset(("case", "when", "then", "else", "end"))
_NO_NAMES = KEYWORDS | RESERVED
_CONSTANTS = {
    "null": Literal("null", None),
    "true": Literal("bool", True),
    "false": Literal("bool", False),
}
_DEEPEST = 30

Token = tuple[str, str]
"""A kind (a sign and a word of the grammar are kinds of their own), and the text."""


def usual(text: str) -> Node | None:
    """The nodes of such an expression; None where the text has another form.

    >>> usual("v + i >= 3")
    Call(op='>=', args=(Call(op='+', args=(Column(name='v'), ...), to=''), Literal(...)), to='')
    >>> usual("CAST(v AS INT)") is None
    True
    """
    tokens = _tokens(text)
    if tokens is None:
        return None
    try:
        return _ExpressionReader(tokens).whole()
    except _OtherFormError:
        return None


class _OtherFormError(Exception):
    """The text is none that is usual."""


def _tokens(text: str) -> list[Token] | None:
    """What a text is made of; None where something is no part of such expressions."""
    tokens: list[Token] = []
    place = 0
    while True:
        found = _TOKEN.match(text, place)
        if found is None:
            return None
        place = found.end()
        group = found.lastindex
        if group is None:
            tokens.append(("", ""))
            return tokens
        token = found[group]
        if group == 1:
            lower = token.lower()
            tokens.append((lower if lower in _WORDS else "name", token))
        elif group == 5:
            if token[-1] == "-" and token[:-1] in _COMPARISONS:  # a<-2
                tokens.append((token[:-1], token[:-1]))
                token = "-"
            if token not in _SIGNS:
                return None
            tokens.append((token, token))
        else:
            tokens.append((("column", "number", "text")[group - 2], token))


class _ExpressionReader:
    """Reads tokens from left to right; each method reads what binds as its name says."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.kind = tokens[0][0]
        self.depth = 0

    def whole(self) -> Node:
        node = self.disjunction()
        if self.kind:
            raise _OtherFormError
        return node

    def advance(self) -> str:
        """Goes past a token, and gives its text."""
        text = self.tokens[self.place][1]
        self.place += 1
        self.kind = self.tokens[self.place][0]
        return text

    def take(self, kind: str) -> bool:
        """Whether the next token is of a kind, which is then passed."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def need(self, kind: str) -> None:
        if not self.take(kind):
            raise _OtherFormError

    # -- from what binds least to what binds most --------------------------------------------------

    def disjunction(self) -> Node:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _OtherFormError
        terms = [self.conjunction()]
        while self.take("or"):
            terms.append(self.conjunction())
        self.depth -= 1
        return terms[0] if len(terms) == 1 else junction("or", terms)

    def conjunction(self) -> Node:
        terms = [self.negation()]
        while self.take("and"):
            terms.append(self.negation())
        return terms[0] if len(terms) == 1 else junction("and", terms)

    def negation(self) -> Node:
        if not self.take("not"):
            return self.predicate()
        if self.kind == "not":  # many of them would be nested as deeply
            raise _OtherFormError
        return negate(self.negation())

    def predicate(self) -> Node:
        value = self.joined()
        op = _COMPARISONS.get(self.kind)
        if op is not None:
            self.advance()
            return binary(op, value, self.joined())
        if self.take("is"):
            negated = self.take("not")
            self.need("null")
            made: Node = Call("is null", (value,))
            return negate(made) if negated else made
        negated = self.take("not")
        if self.take("between"):
            low = self.joined()
            self.need("and")
            made = between(value, low, self.joined())
        elif self.take("in"):
            made = is_in(value, self.arguments())
        elif self.take("like"):
            pattern = self.joined()
            if not isinstance(pattern, Literal) or pattern.kind != "string":
                raise _OtherFormError
            made = Call("like", (value, pattern))
        elif negated:
            raise _OtherFormError
        else:
            return value
        return negate(made) if negated else made

    def joined(self) -> Node:
        parts = [self.term()]
        while self.take("||"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else _concat(parts)

    def term(self) -> Node:
        node = self.factor()
        while self.kind in ("+", "-"):
            node = Call(self.advance(), (node, self.factor()))
        return node

    def factor(self) -> Node:
        node = self.signed()
        while self.kind in ("*", "/", "%"):
            node = Call(self.advance(), (node, self.signed()))
        return node

    def signed(self) -> Node:
        if not self.take("-"):
            return self.operand()
        if self.kind == "-":
            raise _OtherFormError
        node = self.operand()
        if not isinstance(node, Literal) or isinstance(node.value, bool):
            return Call("neg", (node,))
        if not isinstance(node.value, int | float):
            return Call("neg", (node,))
        return Literal(node.kind, -node.value)

    def operand(self) -> Node:
        kind = self.kind
        if kind in _CONSTANTS:
            self.advance()
            return _CONSTANTS[kind]
        if kind == "case":
            return self.case()
        if kind == "(":
            self.advance()
            node = self.disjunction()
            self.need(")")
            return node
        if kind not in ("name", "column", "number", "text"):
            raise _OtherFormError
        text = self.advance()
        if kind == "name":
            return self.call(text) if self.kind == "(" else _column(text)
        if kind == "number":
            return Literal("float", float(text)) if "." in text else Literal("int", int(text))
        return Column(text) if kind == "column" else Literal("string", text)

    def arguments(self) -> list[Node]:
        """What stands in parentheses, at least one."""
        self.need("(")
        given = [self.disjunction()]
        while self.take(","):
            given.append(self.disjunction())
        self.need(")")
        return given

    def case(self) -> Node:
        self.need("case")
        subject = None if self.kind == "when" else self.disjunction()
        parts: list[Node] = []
        while self.take("when"):
            when = self.disjunction()
            self.need("then")
            parts += [when if subject is None else binary("=", subject, when), self.disjunction()]
        otherwise = self.disjunction() if self.take("else") else _CONSTANTS["null"]
        self.need("end")
        if not parts:
            raise _OtherFormError
        return Call("case", (*parts, otherwise))

    def call(self, name: str) -> Node:
        """A call of a function, whose name was passed."""
        name = name.lower()
        if name not in FUNCTIONS:
            raise _OtherFormError
        args = self.arguments()
        try:
            return called(name, args, name, "expression")
        except QueryError as error:
            raise _OtherFormError from error


def _column(path: str) -> Node:
    """A column, or what is taken out of one by its path."""
    if any(part in _NO_NAMES for part in path.lower().split(".")):
        raise _OtherFormError
    return Column(path)


def _concat(args: list[Node]) -> Node:
    """Texts one behind the other; constants alone are left: 'it''s' reads as two texts."""
    if all(isinstance(arg, Literal) for arg in args):
        raise _OtherFormError
    return concat(args)
