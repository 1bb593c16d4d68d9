"""What deciding costs: the processor's share of a flush policy at a million events a second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median

import msgspec

import catchment as ct
from benchmarks.events import SECOND, workload
from benchmarks.figure import Figure, below
from benchmarks.timing import Action, in_turns, typical
from benchmarks.tree_machines import RATE, charter
from catchment.flush import read
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.tree.local import Local

BATCH = RATE // 10
"""Events of a step: ten steps a second."""


def figures(quick: bool = False) -> Iterator[Figure]:
    seconds, runs = (6, 3) if quick else (10, 7)
    for keys in (1_000, 20_000):
        policies = ("batching", "hybrid(0.25)", "auto")
        times = in_turns(runs, [partial(prepared, flush, keys, seconds) for flush in policies])
        for place, flush in enumerate(policies[1:], start=1):
            more = median(run[place] - run[0] for run in times)
            yield below(
                f"processor time that {flush} adds, {keys:,} keys",
                100 * more / seconds,
                "% of a core",
                5.0,
                f"{typical(times, place) / seconds:.3f} s a second in all, "
                f"{typical(times, 0) / seconds:.3f} with batching; avg by {keys:,} keys, windows "
                f"of 2 s, {RATE:,} events a second of event time for {seconds} s in memory, "
                f"{RATE // BATCH} steps a second, a link too narrow for all",
            )


def prepared(flush: str, keys: int, seconds: int) -> Action:
    """A local node that reads so much, without a network."""
    load = workload(seconds * RATE, RATE, batch=BATCH, keys=keys)
    tables = [step.table for step in load.steps]
    section = {"policy": flush, "bandwidth": f"{max(keys, 2000)} B/s"}
    query = ct.Query("q", ct.avg("v"), by="k", window=ct.tumbling("2s"))
    ruled = charter({"root": None, "e1": "root"}, [query], tables[0].schema)
    ruled = replace(ruled, settings=msgspec.structs.replace(ruled.settings, flush=read(section)))
    machine = Local("e1", MemoryDisk(), ruled, EventsInMemory.of(tables))
    return partial(drive, machine)


def drive(machine: Local) -> None:
    """Steps as the clock goes; what it passes up is acknowledged before the next step."""
    now = 0
    while machine.step(now):
        now += SECOND * BATCH // RATE
        sent = machine.flow.outbox.sent
        machine.flow.arrived(sent, now)
        machine.flow.acknowledged(sent)
