"""`help()` of every public name is useful: what it takes, an example, what it raises."""

from __future__ import annotations

import inspect
import re

import pytest

import catchment as ct
from catchment.functions import Function

NAMES = [*ct.__all__]
GIVEN = {"Plan", "Results", "Stats"}
"""Nobody makes these: they are given."""


def parameters(name: str) -> list[str]:
    made = getattr(ct, name)
    if name in GIVEN:
        return []
    found = inspect.signature(made).parameters
    return [one for one in found if one not in ("self", "sections")]


@pytest.mark.parametrize("name", NAMES)
def test_help_tells_what_it_takes_and_raises_and_has_an_example(name: str) -> None:
    made = getattr(ct, name)
    text = inspect.getdoc(made) or ""
    if inspect.isclass(made) and issubclass(made, Exception):
        assert len(text) > 20 and issubclass(made, ct.CatchmentError)
        return
    missing = [one for one in parameters(name) if not re.search(rf"\b{one}\b", text)]
    assert not missing, f"{name} does not tell what these are: {missing}"
    assert ">>> " in text or re.search(r"^    \S", text, re.MULTILINE), f"{name} has no example"
    assert re.search(r"\braises?\b", text, re.IGNORECASE) or name in GIVEN, f"{name}: no errors"


def test_a_job_tells_all_its_sections() -> None:
    text = inspect.getdoc(ct.Job) or ""
    assert [name for name in ct.Job.model_fields if f"`{name}`" not in text] == []


def test_examples_of_functions_run() -> None:
    """They are made, not written: doctest does not find them in any file."""
    for name in NAMES:
        function = getattr(getattr(ct, name), "function", None)
        if isinstance(function, Function):
            example = function.example
            query = ct.Query("q", eval(example, {"ct": ct}), window=ct.tumbling("1s"))
            assert query.aggregates[0].function == name, example


def test_signatures_name_columns_and_parameters() -> None:
    shown = {name: str(inspect.signature(getattr(ct, name))) for name in ("sum", "corr", "count")}
    assert "column" in shown["sum"] and "params" not in shown["sum"]
    assert "x" in shown["corr"] and "y" in shown["corr"]
    assert "= None" in shown["count"]
    assert "*params" in str(inspect.signature(ct.quantile))
