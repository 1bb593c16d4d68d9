"""Every golden transcript agrees with the brute-force oracle, without any engine."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from catchment.errors import JobError
from catchment.model.query import Query
from catchment.testing.compare import same
from catchment.testing.oracle import Row, oracle_run
from catchment.testing.transcripts import Transcript, check, load, load_folder, replay

FOLDER = Path(__file__).parent / "transcripts"
TRANSCRIPTS = load_folder(FOLDER)
FINAL = [transcript for transcript in TRANSCRIPTS if "emit" not in transcript.settings]
"""The oracle says what is final; running values are held against it in test_early.py."""
NOT_APPLICABLE = yaml.safe_load((FOLDER / "not_applicable.yaml").read_text())


def by_name(transcripts: list[Transcript]) -> list[object]:
    return [pytest.param(transcript, id=transcript.name) for transcript in transcripts]


def agree(expected: list[Row], given: list[Row]) -> bool:
    """The same rows in any order, column by column."""
    left = list(given)
    for row in expected:
        twin = next(
            (r for r in left if r.keys() == row.keys() and all(same(row[c], r[c]) for c in row)),
            None,
        )
        if twin is None:
            return False
        left.remove(twin)
    return not left


def for_oracle(value: Any, schema: pa.Schema | None) -> Any:
    """What a step brings, as the oracle takes it: unsigned 64-bit integers count as decimals."""
    if not isinstance(value, list) or schema is None:
        return value
    large = {field.name for field in schema if field.type == pa.uint64()}
    return [
        {name: Decimal(v) if name in large and v is not None else v for name, v in row.items()}
        for row in value
    ]


@pytest.mark.parametrize("transcript", by_name(FINAL))
def test_transcript_agrees_with_the_oracle(transcript: Transcript) -> None:
    verbs = {"events": "push", "frontier": "advance", "add": "add", "close": "close"}
    steps = [
        (verbs[step.kind], for_oracle(step.value, transcript.schema)) for step in transcript.steps
    ]
    results = oracle_run(transcript.queries, steps, transcript.time, **transcript.settings)
    expected = [step.expect for step in transcript.steps if step.kind in ("frontier", "close")]
    for number, (rows, given) in enumerate(zip(expected, results, strict=True), 1):
        for name in given:
            wanted = rows.get(name, [])
            assert agree(wanted, given[name]), f"result {number}, {name}: {wanted} {given[name]}"


class Replay:
    """An engine made of the oracle, to try `replay` itself."""

    def __init__(self, queries: list[Query], time: str, **settings: Any) -> None:
        self.queries, self.time, self.settings = queries, time, settings
        self.steps: list[tuple[Any, ...]] = []

    def push(self, table: pa.Table) -> None:
        self.steps.append(("push", table.to_pylist()))

    def add(self, query: Query) -> None:
        self.steps.append(("add", query))

    def advance(self, t: int) -> dict[str, pa.Table]:
        return self._results(("advance", t))

    def close(self) -> dict[str, pa.Table]:
        return self._results(("close",))

    def _results(self, step: tuple[Any, ...]) -> dict[str, pa.Table]:
        self.steps.append(step)
        last = oracle_run(self.queries, self.steps, self.time, **self.settings)[-1]
        return {name: pa.Table.from_pylist(rows) for name, rows in last.items()}


def test_a_replay_that_differs_fails() -> None:
    class Lossy(Replay):
        def push(self, table: pa.Table) -> None:
            super().push(table.slice(1))

    transcript = next(t for t in TRANSCRIPTS if t.name == "own.distinct.within")
    with pytest.raises(AssertionError, match=r"own\.distinct\.within, step 2"):
        check(transcript, replay(transcript, Lossy))


def test_names_are_unique_and_say_why() -> None:
    assert len({t.name for t in TRANSCRIPTS}) == len(TRANSCRIPTS)
    assert [t.name for t in TRANSCRIPTS if not t.why] == []


def test_every_case_of_the_sources_is_accounted_for() -> None:
    sources = Counter(t.name.split(".")[0] for t in TRANSCRIPTS)
    assert sources["scotty"] == 39
    assert sources["disco"] == 34
    assert sources["nebulastream"] == 20
    assert sources["ibm_swag"] == 2
    assert len({case["id"] for case in NOT_APPLICABLE}) == 11
    assert all(case["why"] for case in NOT_APPLICABLE)


def test_transcripts_of_others_name_their_source() -> None:
    borrowed = [t for t in TRANSCRIPTS if not t.name.startswith("own.")]
    assert [t.name for t in borrowed if "line" not in t.source] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"setings": {}}, "no such transcript field (given: setings); did you mean 'settings'?"),
        ({"steps": [{"frontiers": 1}]}, "no such step (given: frontiers); did you mean 'frontier'"),
        (
            {"steps": [{"close": True, "expect": {"w1": []}}]},
            "no such query to expect rows of (given: w1); did you mean 'w0'?",
        ),
    ],
)
def test_a_typo_in_a_transcript_is_found(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    text = "SELECT count(*) AS n FROM events GROUP BY window(ts, '1 second')"
    good = {"name": "x", "queries": [{"name": "w0", "sql": text}], "steps": [{"close": True}]}
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump({**good, **change}))
    with pytest.raises(JobError) as caught:
        load(path)
    assert message in str(caught.value)
