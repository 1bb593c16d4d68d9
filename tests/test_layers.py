"""Polices the code: imports only downward, shapes told apart in few places, docstrings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catchment.model.window import Window
from catchment.windows import BUILDERS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "catchment"

LAYERS = (
    ("arrow_memory", "errors", "html", "native"),
    ("plotting", "registry"),
    ("expression",),
    ("model",),
    ("windows",),
    ("operators",),
    ("functions",),
    ("sqltext",),
    ("planner",),
    ("engine",),
    ("durable", "generator", "testing"),
    ("counting", "flush", "serving"),
    ("marking", "ranking"),
    ("sources", "sinks"),
    ("metrics",),
    ("transport",),
    ("job",),
    ("tree",),
    ("spark",),
    ("batch", "nodes"),
    ("point_in_time", "rolling_values", "simulate"),
    ("catchment",),  # what `import catchment` offers; nothing below may lean on it
    ("measure", "ui"),
    ("cli",),
)
"""From the lowest to the highest. Names on one line do not know each other."""

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
SPARK_ALLOWED = ("spark", "cli")

SOURCES = sorted(PACKAGE.rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MODULES = [*SOURCES, *BENCHMARKS, *TESTS]


def layer_of(path: Path) -> str:
    """The layer of a file of the package; of others the name of their folder."""
    if not path.is_relative_to(PACKAGE):
        return path.relative_to(ROOT).parts[0]
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


Check = Callable[[str, str], list[str]]
"""What is wrong with a module, given its text and its layer."""


def found_in(paths: list[Path], check: Check) -> dict[str, list[str]]:
    """What is wrong in each file that has something wrong."""
    found = {str(path.relative_to(ROOT)): check(path.read_text(), layer_of(path)) for path in paths}
    return {name: wrong for name, wrong in found.items() if wrong}


def test_every_module_has_a_layer() -> None:
    assert {layer_of(path) for path in SOURCES} - set(RANK) == set(), "give it one in LAYERS"


def test_imports_only_downward() -> None:
    assert found_in(SOURCES, upward) == {}


def test_pyspark_stays_in_its_place() -> None:
    assert found_in(SOURCES, spark) == {}


def test_the_package_imports_nothing_that_only_a_checkout_has() -> None:
    own = {test.stem for test in TESTS if test.parent.name == "tests"}
    outside = {"benchmarks", "servers", *own}

    def check(source: str, layer: str) -> list[str]:
        return [name for _, name in imports(ast.parse(source)) if name.split(".")[0] in outside]

    assert found_in(SOURCES, check) == {}


EVERY_MODULE = """
import importlib, pkgutil, sys
import catchment
for module in pkgutil.walk_packages(catchment.__path__, "catchment."):
    if not module.name.startswith(("catchment.spark", "catchment.cli")):
        importlib.import_module(module.name)
        if "pandas" in sys.modules:
            sys.exit(f"{module.name} imports pandas")
"""


def test_a_node_loads_nothing_that_only_others_need() -> None:
    """Polars alone would take a fifth of the memory of a small node."""
    heavy = "{'polars', 'pandas', 'pyspark'}"
    code = f"import sys, catchment.nodes.start; print(*{heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_importing_the_package_does_not_import_pandas() -> None:
    """Arrow imports pandas to make its first array or scalar: no module may make one for itself.

    A node would pay for it in memory and in the time of its start. PySpark imports it anyway.
    """
    done = subprocess.run([sys.executable, "-c", EVERY_MODULE], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)


def test_only_durable_makes_the_disk_hold_something() -> None:
    found = [
        path
        for path in SOURCES
        if re.search(r"\b(fsync|fdatasync|flock|os\.sync)\b", path.read_text())
    ]
    assert {layer_of(path) for path in found} == {"durable"}


def test_only_one_module_encodes_and_decodes_records() -> None:
    """So what is read is checked everywhere, and cannot be read in two ways."""
    codec = r"\bmsgspec\.(json|msgpack)\b|\bmsgspec import .*\b(json|msgpack)\b|^import msgpack"
    found = [path for path in SOURCES if re.search(codec, path.read_text(), re.MULTILINE)]
    assert found == [PACKAGE / "model" / "records.py"]


def test_every_module_says_what_it_is() -> None:
    assert [path for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_the_oracle_shares_no_code_with_what_it_judges() -> None:
    allowed = {None, "errors", "model", "windows", "testing"}

    def check(source: str, layer: str) -> list[str]:
        return [name for _, name in imports(ast.parse(source)) if target(name) not in allowed]

    assert found_in(sorted((PACKAGE / "testing").glob("oracle*.py")), check) == {}


JUDGES = [*(PACKAGE / "testing").glob("oracle*.py"), PACKAGE / "testing" / "transcripts.py"]


def test_the_oracle_does_not_ask_windows_what_the_engine_asks_them() -> None:
    """A wrong answer would be wrong on both sides, and be seen by nobody."""
    asked = {name for name, found in vars(Window).items() if isinstance(found, property)}
    asked.add(Window.last_touched.__name__)
    assert {"reach", "numbered", "stream_reading"} <= asked

    def check(source: str, layer: str) -> list[str]:
        nodes = ast.walk(ast.parse(source))
        return sorted(asked & {node.attr for node in nodes if isinstance(node, ast.Attribute)})

    assert found_in(JUDGES, check) == {}


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in [*SOURCES, *BENCHMARKS]}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_formatter_formats_every_line() -> None:
    left_out = re.compile("# *" + "fmt: *(skip|off)")
    assert [path for path in MODULES if left_out.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("import catchment", "engine"),
        ("from catchment import tumbling", "windows"),
        ("from catchment.engine import Engine", "planner"),
        ("def late():\n    from catchment.cli.main import app", "measure"),
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


SHAPES_TOLD_APART = (
    "planner/",
    "windows/",
    "engine/shapes/states.py",
    "testing/window_laws.py",  # each shape has laws of its own
)
"""Where the code may look at the class of a window. All others ask the window."""


def descendants(window: type) -> set[str]:
    """The names of all shapes and window types."""
    below = window.__subclasses__()
    return {one.__name__ for one in below}.union(*map(descendants, below))


def shape_checks(source: str, shapes: set[str]) -> list[str]:
    """Where a module asks for the class of a window: isinstance, type() or a pattern of match."""
    found = []
    for node in ast.walk(ast.parse(source)):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = node.args[1:] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(s, ast.Call) and ast.unparse(s.func) == "type" for s in sides):
                asked = sides
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        names = {
            part.id if isinstance(part, ast.Name) else part.attr
            for one in asked
            for part in ast.walk(one)
            if isinstance(part, ast.Name | ast.Attribute)
        }
        found += [f"line {one.lineno}: {name}" for one in asked[:1] for name in names & shapes]
    return sorted(found)


def test_windows_answer_for_themselves() -> None:
    shapes = descendants(Window)
    others = [
        path for path in SOURCES if not str(path.relative_to(PACKAGE)).startswith(SHAPES_TOLD_APART)
    ]
    assert found_in(others, lambda source, _: shape_checks(source, shapes)) == {}


def test_the_check_of_shapes_finds_them() -> None:
    shapes = descendants(Window)
    assert BUILDERS  # which registers all types
    assert {"Periodic", "Gap", "Marked", "Counted", "Tumbling", "Session"} <= shapes
    assert shape_checks("isinstance(w, Periodic | Gap)", shapes) == [
        "line 1: Gap",
        "line 1: Periodic",
    ]
    assert shape_checks("isinstance(w, (window.Marked, int))", shapes) == ["line 1: Marked"]
    assert shape_checks("type(w) is Counted", shapes) == ["line 1: Counted"]
    assert shape_checks("match w:\n    case Cut():\n        pass", shapes) == ["line 2: Cut"]
    assert not shape_checks("isinstance(w, Window)\nGap(1)", shapes)


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


def test_no_private_name_of_another_module_is_touched() -> None:
    assert found_in([*SOURCES, *BENCHMARKS], lambda source, _: reached_for(source)) == {}


def test_the_check_of_private_names_finds_them() -> None:
    assert reached_for("from catchment.engine.keys import _Recent") == ["line 1: _Recent"]
    assert reached_for("def f(x):\n    return x._parts") == ["line 2: ._parts"]
    assert not reached_for("def f(x):\n    return x._replace(a=1), x._PURGE")


def test_no_two_classes_have_one_name() -> None:
    """A name that a reader searches for leads to one class."""
    found: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
