"""Records of benchmarks: one JSON file a suite, with its figures and where they were measured.

A full run of the suite `tree` is `results/tree.json`, and the documents' tables are made of it. A
quick run is `results/tree-quick.json`: it never takes the place of a full one.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path

import msgspec

import catchment as ct
from benchmarks.figure import Figure
from benchmarks.process import ROOT
from catchment.errors import CatchmentError

RESULTS = ROOT / "benchmarks" / "results"
_GIB = 1 << 30


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it was measured on, without a word of whose it is."""

    cores: int
    memory_gib: int
    python: str
    spark: str | None


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of a suite."""

    suite: str
    quick: bool
    commit: str
    date: date
    machine: Machine
    figures: list[Figure]


def made(suite: str, quick: bool, commit: str, figures: Iterable[Figure]) -> Record:
    """A record of figures that were measured here, today."""
    kept = [msgspec.structs.replace(figure, value=float(figure.value)) for figure in figures]
    for figure in kept:
        if not math.isfinite(figure.value):
            raise CatchmentError(
                "a figure that is no number is not recorded",
                given=f"{figure.name}: {figure.value}",
                hint="the benchmark divides by nothing; put it right",
            )
    return Record(suite, quick, commit, datetime.now(UTC).date(), machine(), kept)


def machine() -> Machine:
    """This machine: its cores that we may use, its memory, and the versions that matter."""
    try:
        spark: str | None = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        spark = None
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Machine(cores or 1, round(memory / _GIB), platform.python_version(), spark)


def commit() -> str:
    """The commit of the code that is measured; says so if the code differs from the commit's.

    Raises when that cannot be known, for then the figures would be nobody's.
    """
    if Path(ct.__file__).resolve().parent != ROOT / "src" / "catchment":
        raise CatchmentError(
            "the package that is measured is not the checkout's, so its commit is not known",
            hint="install the checkout (make setup), and use its .venv/bin/catchment",
        )
    head = _git("rev-parse", "--short", "HEAD")
    # Of the benchmarks, results are what is written here.
    code = ("src", "benchmarks", ":(exclude)benchmarks/results")
    return f"{head} with changes" if _git("status", "--porcelain", "--", *code) else head


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CatchmentError(
            "the commit that is measured is not known",
            given=f"git {words[0]}",
            hint="a record needs git, and a checkout made by it; leave out --record",
        ) from error
    return done.stdout.strip()


def place(suite: str, quick: bool = False) -> Path:
    """Where the record of a suite is, or would be."""
    return RESULTS / f"{suite}{'-quick' if quick else ''}.json"


def write(record: Record) -> Path:
    """Writes a record in place of the one before it, and gives its path."""
    path = place(record.suite, record.quick)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(record), indent=2)
    path.write_bytes(text + b"\n")
    return path


def read(suite: str) -> Record | None:
    """The record of a suite's last full run; None where there is none yet."""
    path = place(suite)
    if not path.exists():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Record)
    except msgspec.DecodeError as error:
        raise CatchmentError(
            "a record of a benchmark cannot be read", given=path.name, hint=str(error)
        ) from error
    if found.suite != suite or found.quick:
        raise CatchmentError(
            "a record is not of what its name says",
            given=f"{path.name}: {'a quick run of ' if found.quick else ''}{found.suite}",
            hint=f"run catchment bench {suite} --record",
        )
    return found
