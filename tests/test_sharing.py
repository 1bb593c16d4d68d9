"""Tests that use one server run in one worker, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharing import SHARED, server_of


def test_a_test_of_a_server_is_known_by_its_name(request: pytest.FixtureRequest) -> None:
    """Of all tests that were collected, these use a server: pytest knows it from their fixtures."""
    found = {
        item.originalname: set(SHARED) & set(item.fixturenames)
        for item in request.session.items
        if isinstance(item, pytest.Function) and server_of(item.nodeid) is None
    }
    assert {name: used for name, used in found.items() if used} == {}


@pytest.mark.parametrize(
    ("nodeid", "server"),
    [
        ("tests/test_calendar.py::test_spark", "spark"),
        ("tests/test_calendar.py::test_every_day_of_every_zone_for_thirty_years", None),
        ("tests/test_docs.py::test_python_of_the_documents_runs[README.md]", "spark"),
        ("tests/test_transcripts.py::test_transcripts_on_spark[streaming-a[b]", "spark"),
        ("tests/test_transcripts.py::test_transcripts[engine-a]", None),
        ("src/catchment/registry.py::catchment.registry", None),
    ],
)
def test_other_tests_of_a_file_go_to_any_worker(nodeid: str, server: str | None) -> None:
    assert server_of(nodeid) == server


def test_every_file_can_be_read() -> None:
    """Functions of a file may name each other in a circle: they need not be fixtures."""
    for path in Path(__file__).parent.glob("test_*.py"):
        server_of(f"tests/{path.name}::test_something")
