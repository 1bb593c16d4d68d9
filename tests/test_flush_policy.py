"""Flush policies as job files have them: what they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from catchment.errors import JobError
from catchment.flush import parse, read
from catchment.flush.units import rate
from catchment.tree.charter import Charter
from catchment.tree.settings import TreeSettings


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("auto", "auto"),
        ("batching", "batching"),
        ("streaming", "streaming"),
        ("hybrid(0.25)", "hybrid(0.25)"),
        ("Hybrid( .5 , uniform , pessimistic )", "hybrid(0.5, uniform, pessimistic)"),
        ("uniform", "eager(uniform)"),
        ("eager", "eager(nonuniform)"),
        ("eager(empirical)", "eager(empirical)"),
        ("lazy(empirical)", "lazy(empirical)"),
        ("pessimistic", "lazy(pessimistic)"),
        ("lazy", "lazy(optimistic)"),
    ],
)
def test_a_policy_and_its_name(text: str, shown: str) -> None:
    assert str(parse(text)) == shown
    assert parse(shown) == parse(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("hybrid(1.5)", "must be from 0 to 1 (given: 1.5)"),
        ("hybrid(-0.1)", "must be from 0 to 1 (given: -0.1)"),
        ("hybrid(nan)", "must be from 0 to 1"),
        ("hybrid(lazy)", "must be from 0 to 1"),
        ("hybrid", "hybrid takes a share of laziness"),
        ("hybrid(0.1, a)", "no such policy for hybrid's eager side"),
        ("hybird(0.1)", "did you mean 'hybrid'"),
        ("empirical", "write eager(empirical) or lazy(empirical)"),
        ("batching(3)", "takes nothing"),
        ("uniform(3)", "takes nothing"),
        ("eager(lazy)", "no such policy for eager"),
        ("eager(a, b)", "eager takes one word"),
        ("", "not a flush policy"),
        (0.25, "not a flush policy"),
    ],
)
def test_what_is_no_policy(text: object, what: str) -> None:
    with pytest.raises(JobError) as error:
        parse(text)
    assert what in str(error.value)


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ({"budget": "-1 MB/h"}, "the budget must be more than nothing"),
        ({"bandwidth": "0 B/s"}, "the bandwidth must be more than nothing"),
        ({"meter": "5 apples/day"}, "not an amount of bytes in a time"),
        ({"staleness": "-2s"}, "the staleness target must be positive"),
        ({"staleness": "soon"}, "not a duration"),
        ({"weight": 0}, "the weight of staleness must be a positive number"),
        ({"weight": "much"}, "must be a positive number"),
        ({"staleness": "2s", "budget": "1 MB/h"}, "flush has one goal"),
        ({"policy": "batching", "staleness": "2s"}, "only auto has a goal"),
        ({"eviction": "fifo"}, "no such eviction"),
        ({"compress": "maybe"}, "no such compress"),
        ({"polcy": "auto"}, "did you mean 'policy'"),
        ({"priorities": {"q": -1}}, "the priority of q must be a positive number"),
        ({"priorities": [1]}, "priorities are numbers by query"),
        ("hybrid(2)", "must be from 0 to 1"),
    ],
)
def test_what_is_no_section(section: Any, what: str) -> None:
    with pytest.raises(JobError) as error:
        read(section)
    assert what in str(error.value)


def test_a_section_survives_a_charter() -> None:
    for section in (
        None,
        "hybrid(0.25)",
        {"staleness": "2s", "eviction": "lru", "compress": False},
        {"budget": "1 MB/h", "meter": "20 MB/day", "priorities": {"alarms": 5}},
    ):
        made = read(section)
        settings = TreeSettings(flush=made)
        charter = Charter("job", 1, settings, {}).with_queries([])
        assert Charter.from_bytes(charter.data).settings == settings
        assert read(made) is made
    assert read(None).policy.kind == "auto"


def test_rates() -> None:
    assert rate("1 MB/day", "budget") == pytest.approx(1e6 / 86400)
    assert rate("1.5kB/min", "budget") == pytest.approx(25)
