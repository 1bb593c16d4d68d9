"""Every golden transcript on every runtime.

Parameters are a runtime and the transcripts that it plays in one go, each of which is a subtest:
one for the engine and the simulator, and as many as fit together for runtimes that are jobs.
Streaming and nodes on Spark take a fixed selection, since every frontier costs them about a second;
with CATCHMENT_TRANSCRIPTS=all, as in `make soak`, they take all but those that say why not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catchment.planner import plan
from catchment.testing.transcripts import Transcript, check, load_folder
from runtimes import RUNTIMES, Runtime, signed
from transcript_script import TIME, Script

TRANSCRIPTS = load_folder(Path(__file__).parent / "transcripts")


def reason(runtime: Runtime, case: Transcript) -> str | None:
    """Why the runtime cannot take the transcript; None: it can."""
    return case.not_on.get(runtime.name, case.not_on.get(runtime.family))


def parameters(on_spark: bool) -> Iterator[Any]:
    """What the runtimes play that need a session of Spark, or what the others do."""
    for runtime in RUNTIMES:
        if (pytest.mark.spark in runtime.marks) != on_spark:
            continue
        taken = [case for case in TRANSCRIPTS if reason(runtime, case) is None]
        for part in runtime.parts(taken):
            more = f"-and-{len(part) - 1}-more" if part[1:] else ""
            yield pytest.param(
                runtime, part, id=f"{runtime.name}-{part[0].name}{more}", marks=runtime.marks
            )
        for case in TRANSCRIPTS:
            if why := reason(runtime, case):
                skip = pytest.mark.skip(reason=f"{case.name} is not for {runtime.name}: {why}")
                yield pytest.param(runtime, [case], id=f"{runtime.name}-{case.name}", marks=skip)


@pytest.mark.parametrize(("runtime", "cases"), list(parameters(on_spark=False)))
def test_transcripts(
    runtime: Runtime, cases: list[Transcript], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    play(runtime, cases, tmp_path, None, subtests)


@pytest.mark.parametrize(("runtime", "cases"), list(parameters(on_spark=True)))
def test_transcripts_on_spark(
    runtime: Runtime,
    cases: list[Transcript],
    tmp_path: Path,
    spark: Any,
    subtests: pytest.Subtests,
) -> None:
    play(runtime, cases, tmp_path, spark, subtests)


def play(
    runtime: Runtime, cases: list[Transcript], home: Path, spark: Any, subtests: pytest.Subtests
) -> None:
    given = runtime.play(cases, home, spark)
    for case in cases:
        with subtests.test(case.name):
            check(case, given[case.name], runtime.by_step)


def test_a_transcript_says_why_it_is_not_for_a_runtime() -> None:
    known = {name for runtime in RUNTIMES for name in (runtime.name, runtime.family)}
    stated = [(case.name, name, why) for case in TRANSCRIPTS for name, why in case.not_on.items()]
    assert [one for one in stated if one[1] not in known or len(one[2].split()) < 5] == []


def test_dataframes_are_sliced_by_spark_and_in_python() -> None:
    """Which of the two is decided for all queries of a job together, so they are parted by it."""
    types = pytest.importorskip("pyspark.sql.pandas.types")
    frames = pytest.importorskip("catchment.spark.frames")
    runtime = next(runtime for runtime in RUNTIMES if runtime.name == "batch-dataframe")
    ways = []
    for part in runtime.parts([c for c in TRANSCRIPTS if reason(runtime, c) is None]):
        script = Script(part)
        schema = types.from_arrow_schema(signed(script.schema))
        found = frames.how(plan(script.queries), schema, TIME)
        ways.append({way for way, _ in found.values()})
    assert {"columns"} in ways and {"python"} in ways


def test_the_engine_takes_every_transcript_and_no_runtime_few() -> None:
    """What is left out is the exception."""
    taken = {r.name: sum(reason(r, case) is None for case in TRANSCRIPTS) for r in RUNTIMES}
    assert taken["engine"] == len(TRANSCRIPTS)
    assert min(taken.values()) > 0.9 * len(TRANSCRIPTS)
