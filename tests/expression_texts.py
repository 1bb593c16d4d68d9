"""Texts of expressions, in every spelling that we read and in many that we refuse."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st


def _one_of(words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words.split())


_names = _one_of("v k Site _x1 req.n a.b.c `sum(a)` date end order") | st.just("`how many`")
_constants = _one_of("1 0 007 2.50 0.0 1e3 .5 3L 'a' '' 'it\\'s' '%x_' 'minute' NULL true FALSE")
_constants |= st.sampled_from(["DATE '2026-01-01'", "TIMESTAMP '2026-01-01 00:00:00'"])


def _joined(*parts: Any) -> st.SearchStrategy[str]:
    drawn = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*drawn).map("".join)


def _calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = "abs round coalesce nullif least greatest lower concat length size pow power if year"
    more = "minute date_trunc substring array_contains trim left log tuple weekday ifnull sum"
    listed = st.lists(inner, min_size=0, max_size=3).map(", ".join)
    return _joined(
        st.sampled_from([*names.split(), *more.split(), "Abs", "HOUR"]), "(", listed, ")"
    )


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = _one_of("= == <> != < <= > >= + - * / % || AND OR and or <=> DIV & ^")
    negated = st.sampled_from([" ", " NOT ", " not "])
    listed = st.lists(inner, min_size=1, max_size=3).map(", ".join)
    return st.one_of(
        _joined(inner, " ", signs, " ", inner),
        _joined(inner, _one_of("+ - * < >= = <- =- +-"), inner),
        _joined("(", inner, ")"),
        _joined(st.sampled_from(["NOT ", "-", "- ", "+", "~"]), inner),
        _joined(inner, st.sampled_from([" IS NULL", " IS NOT NULL", " is null", " IS TRUE"])),
        _joined(inner, negated, "BETWEEN ", inner, " AND ", inner),
        _joined(inner, negated, "IN (", listed, ")"),
        _joined(inner, negated, "LIKE ", inner),
        _joined("CASE WHEN ", inner, " THEN ", inner, " ELSE ", inner, " END"),
        _joined("CASE ", inner, " WHEN ", inner, " THEN ", inner, " END"),
        _joined("CAST(", inner, " AS DOUBLE)"),
        _calls(inner),
    )


texts = st.recursive(_names | _constants, _grown, max_leaves=6)
pieces = st.lists(
    _one_of("a b.c `d` 1 2.5 'x' ( ) ( ) , + - * / % || = < >= AND OR NOT IN IS NULL BETWEEN LIKE")
    | _one_of(
        "CASE WHEN THEN ELSE END abs if coalesce -- /* */ . ; x' \\ [ ] -> => ! interval date"
    ),
    max_size=9,
).flatmap(lambda some: st.sampled_from([" ".join(some), "".join(some)]))
