"""Regular expressions over texts: RLIKE, regexp_extract, regexp_replace, split; LIKE and ILIKE.

Patterns are constants. They are those of RE2, which Arrow has: as in Java but for look-around and
references back to groups, which would take unbounded time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import QueryError
from catchment.expression.nodes import Call, render
from catchment.expression.values import BOOL, INT, STRING, Value, kind, need, null, where

_TEXTS = ("string", "null")


def like(node: Call, args: Sequence[Value]) -> Value:
    """LIKE and ILIKE."""
    need(node, args, _TEXTS, "text")
    if kind(args[0]) == "null":
        return null(BOOL)
    return pc.match_like(args[0], pattern=args[1].as_py(), ignore_case=node.op == "ilike")


def matched(node: Call, args: Sequence[Value]) -> Value:
    """RLIKE: whether a part of a text is as the pattern says."""
    need(node, args, _TEXTS, "text")
    pattern = _checked(node, args[1].as_py())
    if kind(args[0]) == "null":
        return null(BOOL)
    return pc.match_substring_regex(args[0], pattern=pattern)


def extracted(node: Call, args: Sequence[Value]) -> Value:
    """What a group of the pattern matched first; an empty text where nothing did."""
    need(node, args[:2], _TEXTS, "text")
    pattern = _checked(node, args[1].as_py())
    group = args[2].as_py() if len(args) > 2 else 1
    named, groups = _with_names(pattern)
    if not 0 <= group <= groups:
        raise QueryError(
            "regexp_extract names a group that the pattern does not have",
            given=render(node),
            hint=f"it has {groups}; 0 is the whole match",
        )
    if kind(args[0]) == "null":
        return null(STRING)
    found = pc.extract_regex(args[0], pattern=f"(?P<g0>{named})")
    part: Value = pc.struct_field(found, [group])
    part = pc.cast(pc.coalesce(part, pa.scalar("", part.type)), STRING)
    return pc.if_else(pc.is_null(args[0]), null(STRING), part)


def counted(node: Call, args: Sequence[Value]) -> Value:
    """regexp_count: how often a pattern matches, one match behind the other."""
    need(node, args, _TEXTS, "text")
    pattern = _checked(node, args[1].as_py())
    if kind(args[0]) == "null":
        return null(INT)
    return pc.cast(pc.count_substring_regex(args[0], pattern=pattern), INT)


def first_match(node: Call, args: Sequence[Value]) -> Value:
    """regexp_substr: what matched first; null where nothing did."""
    need(node, args, _TEXTS, "text")
    named, _ = _with_names(_checked(node, args[1].as_py()))
    if kind(args[0]) == "null":
        return null(STRING)
    found = pc.extract_regex(args[0], pattern=f"(?P<g0>{named})")
    return pc.cast(pc.struct_field(found, [0]), STRING)


def replaced(node: Call, args: Sequence[Value]) -> Value:
    """Every match replaced; `$1` in what replaces it is what the first group matched."""
    need(node, args, _TEXTS, "text")
    pattern = _checked(node, args[1].as_py())
    into = _rewritten(node, args[2].as_py())
    if kind(args[0]) == "null":
        return null(STRING)
    return pc.cast(pc.replace_substring_regex(args[0], pattern=pattern, replacement=into), STRING)


def split(node: Call, args: Sequence[Value]) -> Value:
    """The parts of a text between the matches of a pattern, with empty ones at the end."""
    need(node, args, _TEXTS, "text")
    pattern = _checked(node, args[1].as_py())
    if pc.match_substring_regex(pa.scalar(""), pattern=pattern).as_py():
        raise QueryError(
            "split has a pattern that matches nothing at all",
            given=render(node),
            hint="write what stands between the parts, as in split(path, '/')",
        )
    if kind(args[0]) == "null":
        return null(pa.list_(STRING))
    return pc.cast(pc.split_pattern_regex(args[0], pattern=pattern), pa.list_(STRING))


def split_part(node: Call, args: Sequence[Value]) -> Value:
    """One of the parts between a text, counted from 1, or from the end; empty where there is none.

    What stands between the parts is a text here, no pattern.
    """
    need(node, args[:2], _TEXTS, "text")
    number, between = args[2].as_py(), args[1].as_py()
    if number == 0 or not between:
        raise QueryError(
            "split_part has the wrong arguments",
            given=render(node),
            hint="write split_part(path, '/', 2); parts count from 1, or with -1 from the end",
        )
    if kind(args[0]) == "null":
        return null(STRING)
    parts: Any = pc.split_pattern(args[0], pattern=between)
    scalar = isinstance(parts, pa.Scalar)
    lists: Any = pa.array([parts.as_py()], pa.list_(STRING)) if scalar else parts
    lengths = pc.list_value_length(lists)
    place = pa.scalar(number - 1) if number > 0 else pc.add(lengths, pa.scalar(number))
    there = pc.and_(pc.less(place, lengths), pc.greater_equal(place, pa.scalar(0)))
    there = pc.coalesce(there, pa.scalar(False))
    starts = pc.subtract(pc.cumulative_sum(pc.coalesce(lengths, pa.scalar(0))), lengths)
    at = pc.if_else(there, pc.add(starts, place), pa.scalar(None, pa.int64()))
    found = pc.coalesce(lists.flatten().take(pc.cast(at, pa.int64())), pa.scalar(""))
    made: Any = pc.cast(where(pc.is_valid(lists), found, null(STRING)), STRING)
    return made[0] if scalar else made


@lru_cache(maxsize=1024)
def _problem(pattern: str) -> str | None:
    """What is wrong with a pattern."""
    try:
        pc.match_substring_regex(pa.scalar(""), pattern=pattern)
    except pa.ArrowInvalid as error:
        return str(error).splitlines()[0]
    return None


def _checked(node: Call, pattern: str) -> str:
    problem = _problem(pattern)
    if problem is not None:
        raise QueryError(
            "a regular expression is none, or has what RE2 does not do",
            given=render(node),
            hint=f"{problem}; look-around and references back to groups are not done",
        )
    return pattern


@lru_cache(maxsize=1024)
def _with_names(pattern: str) -> tuple[str, int]:
    """The pattern with a name for each group that it captures, and their number.

    >>> _with_names("(a|[(b])(?:c)\\\\(d(e)")
    ('(?P<g1>a|[(b])(?:c)\\\\(d(?P<g2>e)', 2)
    """
    made: list[str] = []
    groups, place, inside = 0, 0, False
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            made.append(pattern[place : place + 2])
            place += 2
            continue
        if inside:
            inside = char != "]" or pattern[place - 1] == "[" or pattern[place - 2 : place] == "[^"
        elif char == "[":
            inside = True
        elif char == "(" and pattern[place + 1 : place + 2] != "?":
            groups += 1
            char = f"(?P<g{groups}>"
        elif pattern.startswith(("(?<", "(?P<"), place) and pattern[place + 3] not in "=!":
            groups += 1
            end = pattern.index(">", place)
            char, place = f"(?P<g{groups}>", end
        made.append(char)
        place += 1
    return "".join(made), groups


def _rewritten(node: Call, into: str) -> str:
    """Java's way to name groups in a replacement as RE2's."""
    made: list[str] = []
    place = 0
    while place < len(into):
        char, after = into[place], into[place + 1 : place + 2]
        if char == "\\" and after:
            made.append("\\\\" if after == "\\" else after)
            place += 2
        elif char == "$" and after.isdigit() and after.isascii():
            made.append(f"\\{after}")
            place += 2
        elif char in "$\\":
            raise QueryError(
                "regexp_replace names a group that is none",
                given=render(node),
                hint="write $1 for what the first group matched, and \\\\$ for the sign itself",
            )
        else:
            made.append(char)
            place += 1
    return "".join(made)
