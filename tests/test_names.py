"""Polices names: one name for one type, and none of the words that were put out of use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "catchment"
SOURCES = sorted(PACKAGE.rglob("*.py"))

SHARED: dict[str, str] = {}
"""Names that types of several modules may have, each with its reason. There are none."""

OUT_OF_USE = {
    "asked": "distributed_groups, answered_ask",
    "asks": "distributes_counts",
    "ease": "send_early",
    "easing": "early_flush",
    "kept": "what it is: rows, files, a leaf",
    "lay_by": "buffer",
    "office": "service",
    "patience": "timeout",
    "seat": "slot",
    "steward": "committer",
    "sure": "complete_until",
    "survey": "bounds",
    "tally": "counting",
    "told": "what it says: text, settings, last_sent",
    "track": "assign",
    "tracks": "views",
    "trouble": "error",
}
"""Names of attributes, functions and fields that had to be looked up, and what to say instead."""

TYPES_OUT_OF_USE = {
    "Asked": "LastQuestion",
    "Easing": "EarlySender",
    "Handed": "PlansFromRoot",
    "Steward": "BatchCommitter",
    "Told": "Orders, or what it is",
}
"""Names of types that had to be looked up, and what to say instead."""


def types(source: str) -> Iterator[str]:
    """The classes of a module, and the types it gives a name; whether private or not."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
    for node in tree.body:
        named = node.targets if isinstance(node, ast.Assign) else []
        for one in named:
            # Types are written LikeThis, and constants LIKE_THIS.
            if isinstance(one, ast.Name) and one.id[0].isupper() and not one.id.isupper():
                yield one.id


def members(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every function, method, attribute and field that a module defines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    yield one.lineno, one.target.id


def twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """Types that have one name in several modules, and the modules."""
    places: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name in sorted(set(types(source))):
            places.setdefault(name, []).append(path)
    return {name: found for name, found in places.items() if len(found) > 1}


def out_of_use(source: str) -> list[str]:
    """Names of a module that are out of use."""
    found = [(line, name) for line, name in members(source) if name.lstrip("_") in OUT_OF_USE]
    said = [f"line {n}: {name}: say {OUT_OF_USE[name.lstrip('_')]}" for n, name in sorted(found)]
    named = sorted(set(types(source)) & TYPES_OUT_OF_USE.keys())
    return [*said, *(f"the type {name}: say {TYPES_OUT_OF_USE[name]}" for name in named)]


def test_no_two_types_have_one_name() -> None:
    """A reader who searches for a type finds one, and a name means one thing in all modules."""
    found = twice({str(path.relative_to(PACKAGE)): path.read_text() for path in SOURCES})
    assert {name: where for name, where in found.items() if name not in SHARED} == {}
    assert SHARED.keys() <= found.keys(), "allowed, yet there is only one"


def test_no_name_is_out_of_use() -> None:
    found = {str(path.relative_to(PACKAGE)): out_of_use(path.read_text()) for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_checks_find_what_they_look_for() -> None:
    one = "class Place:\n    sure: int = 0\n\n    def _told(self):\n        self.trouble = 1\n"
    other = "Place = tuple[int, str]\nMOST = 3\n"
    assert twice({"a": one, "b": other, "c": "class _Place: pass"}) == {"Place": ["a", "b", "c"]}
    assert [text.split(": say")[0] for text in out_of_use(one)] == [
        "line 2: sure",
        "line 4: _told",
        "line 5: trouble",
    ]
    old = "class _Asked: pass\n\n\nTold = tuple[int, str]\nAskedRow = tuple[int]\n"
    assert [text.split(": say")[0] for text in out_of_use(old)] == [
        "the type Asked",
        "the type Told",
    ]
    assert not out_of_use("def text(told):\n    sure = told\n    return sure\n")
    assert not twice({"a": other, "b": "MOST = 4\nplace = 1\n"})
