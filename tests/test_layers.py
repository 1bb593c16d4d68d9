"""Polices the code: imports only downward, a docstring in every module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "catchment"

LAYERS = (
    ("errors",),
    ("registry",),
    ("expression",),
    ("model",),
    ("windows",),
    ("operators",),
    ("functions",),
    ("sqltext",),
    ("planner",),
    ("engine",),
    ("counting", "flush"),
    ("durable", "generator", "testing"),
    ("sources", "sinks"),
    ("transport",),
    ("job",),
    ("tree",),
    ("spark",),
    ("nodes",),
    ("simulate",),
    ("catchment",),  # what `import catchment` offers; nothing below may lean on it
    ("bench",),
    ("dashboard",),
    ("cli",),
)
"""From the lowest to the highest. Names on one line do not know each other."""

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
SPARK_ALLOWED = ("spark", "cli", "bench")

SOURCES = sorted(PACKAGE.rglob("*.py"))
MODULES = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py"))]


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return "catchment" if first == "__init__.py" else first.removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from catchment import planner` names a layer; `from catchment import avg` the facade.
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def target(name: str) -> str | None:
    """The layer that an imported name belongs to, or None when it is not ours."""
    head, *rest = name.split(".")
    if head != "catchment":
        return None
    return rest[0] if rest and rest[0] in RANK else "catchment"


def upward(source: str, layer: str) -> list[str]:
    """Imports in `source` that a module of `layer` may not have."""
    found = []
    for line, name in imports(ast.parse(source)):
        other = target(name)
        if other is None or other == layer:
            continue
        if RANK[other] >= RANK[layer]:
            found.append(f"line {line}: {layer} may not import {name}")
    return found


def spark(source: str, layer: str) -> list[str]:
    """Imports of pyspark where it does not belong."""
    if layer in SPARK_ALLOWED:
        return []
    names = imports(ast.parse(source))
    return [f"line {n}: {name}" for n, name in names if name.split(".")[0] == "pyspark"]


def by_path(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in paths]


@pytest.mark.parametrize("path", by_path(SOURCES))
def test_imports_only_downward(path: Path) -> None:
    layer = layer_of(path)
    assert layer in RANK, f"{layer} has no layer yet: give it one in LAYERS"
    assert upward(path.read_text(), layer) == []


@pytest.mark.parametrize("path", by_path(SOURCES))
def test_pyspark_stays_in_its_place(path: Path) -> None:
    assert spark(path.read_text(), layer_of(path)) == []


def test_only_durable_makes_the_disk_hold_something() -> None:
    found = [
        path for path in SOURCES if re.search(r"\b(fsync|fdatasync|flock)\(", path.read_text())
    ]
    assert {layer_of(path) for path in found} <= {"durable"}


@pytest.mark.parametrize("path", by_path(MODULES))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "the module has no docstring"


@pytest.mark.parametrize("path", by_path(sorted((PACKAGE / "testing").glob("oracle*.py"))))
def test_the_oracle_shares_no_code_with_what_it_judges(path: Path) -> None:
    allowed = {None, "errors", "model", "windows", "testing"}
    assert {target(name) for _, name in imports(ast.parse(path.read_text()))} <= allowed


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("import catchment", "engine"),
        ("from catchment import tumbling", "windows"),
        ("from catchment.engine import Engine", "planner"),
        ("def late():\n    from catchment.cli.main import app", "bench"),
        ("from catchment.testing import oracle", "generator"),
    ],
)
def test_an_import_upward_or_sideways_is_found(source: str, layer: str) -> None:
    assert len(upward(source, layer)) == 1


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("import catchment as ct", "cli"),
        ("from catchment.model.query import Query", "engine"),
        ("from catchment import errors", "model"),
        ("from catchment.engine import store", "engine"),
        ("import numpy, pyarrow.compute", "errors"),
    ],
)
def test_an_import_downward_is_allowed(source: str, layer: str) -> None:
    assert upward(source, layer) == []


def test_pyspark_out_of_place_is_found() -> None:
    assert spark("from pyspark.sql import functions", "engine") == ["line 1: pyspark.sql.functions"]
    assert spark("import pyspark", "spark") == []


FOREIGN = ("_replace", "_asdict", "_fields", "_make", "_jvm", "_topic", "_exit")
"""Private by their names, yet offered by Python and by libraries."""


def reached_for(source: str) -> list[str]:
    """Private names of other modules that a module touches."""
    tree = ast.parse(source)
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            own |= {node.attr} if node.value.id in ("self", "cls") else set()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = node.attr
            if re.match("_[a-z]", name) and name not in own and name not in FOREIGN:
                found.append(f"line {node.lineno}: .{name}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("catchment"):
            found += [f"line {node.lineno}: {a.name}" for a in node.names if a.name[0] == "_"]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_private_name_of_another_module_is_touched(path: Path) -> None:
    assert not reached_for(path.read_text())


def test_the_check_of_private_names_finds_them() -> None:
    assert reached_for("from catchment.engine.keys import _Recent") == ["line 1: _Recent"]
    assert reached_for("def f(x):\n    return x._parts") == ["line 2: ._parts"]
    assert not reached_for("def f(x):\n    return x._replace(a=1), x._PURGE")
