"""What each flush policy would cost on a user's own events: a sample is sliced and replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.engine.merger import Touch
from catchment.engine.partials import Partials
from catchment.engine.times import with_times
from catchment.errors import DataError
from catchment.flush import parse
from catchment.flush.bandwidth import Estimate
from catchment.flush.line import SendQueue
from catchment.model.plan import Group
from catchment.model.query import Query
from catchment.model.time_column import TimeSpec, time_name
from catchment.operators.ragged import Ints
from catchment.planner.cost import periods_of
from catchment.planner.edges import EARLIEST
from catchment.simulate.arrivals import Arrivals
from catchment.simulate.edge import run
from catchment.simulate.outcome import optimal, streaming
from catchment.tree.charter import Charter
from catchment.tree.early_flush import holds_back
from catchment.tree.message import Head, encode
from catchment.tree.settings import TreeSettings

POLICIES = (
    "optimal",
    "auto",
    "hybrid(0.25)",
    "lazy(pessimistic)",
    "eager(uniform)",
    "batching",
    "streaming",
)
_PIECES = 200
"""How often in a slice a node looks at what has come; it decides half as often."""
_TICKS = 100


@dataclass(frozen=True)
class SampledGroup:
    """What a node that reads the sample would see of a group of queries."""

    queries: tuple[str, ...]
    arrivals: Arrivals
    each: float
    """Bytes of an update, packed."""

    @property
    def least(self) -> float:
        """Bytes a second that cannot be avoided."""
        per_slice = float(self.arrivals.distinct().mean())
        return per_slice * self.each / self.arrivals.length


@dataclass(frozen=True)
class PolicyRow:
    """A policy on a link: bytes an hour, and seconds that results are late, on average."""

    policy: str
    bandwidth: float
    traffic: float
    """Over the least possible."""
    hourly: float
    late: float
    latest: float


def samples(queries: Iterable[Query], events: pa.Table, spec: TimeSpec) -> list[SampledGroup]:
    """Slices a sample as a node would, and notes when each slice and key is touched."""
    events, time = with_times(events, spec), time_name(spec)
    charter = Charter("advice", 0, TreeSettings(time=time), {}).with_queries(queries)
    charter = charter.with_schema(events.schema)
    plan = charter.plans[charter.plan].plan
    events = events.sort_by(time)
    stamps = pc.cast(events.column(time), pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    if len(stamps) < 2 or stamps[0] == stamps[-1]:
        raise DataError("the sample is too short to tell anything", given=f"{len(stamps)} events")
    bound = charter.bound(charter.plan)
    merger = bound.merger(stream="advice")
    slicer = bound.slicer(encoder=merger.encoder)
    merger.watched = True
    seen: dict[int, list[tuple[float, Touch]]] = {}
    packed = {group.id: [0, 0] for group in plan.groups}
    for low, high in _pieces(stamps, _shortest([g for g in plan.groups if holds_back(g)])):
        for sliced in slicer.slice(events.slice(low, high - low), arrival=low):
            merger.add(sliced)
        for id, touches in merger.touched().items():
            seen.setdefault(id, []).extend((float(stamps[high - 1]), touch) for touch in touches)
        for id, table in merger.release(int(stamps[high - 1]), settles=EARLIEST).groups.items():
            if table.num_rows:
                head = Head("advice", 0, charter.plan, 0, 0)
                packed[id][0] += len(encode(head, Partials({id: table}), charter))
                packed[id][1] += table.num_rows
    names: dict[int, list[str]] = {}
    for name, (id, _) in plan.names.items():
        names.setdefault(id, []).append(name)
    return [
        _sample(tuple(names.get(id, ())), touches, packed[id][0] / max(packed[id][1], 1))
        for id, touches in seen.items()
        if holds_back(plan.groups[id])
    ]


def _shortest(groups: Iterable[Group]) -> int:
    windows = [window for group in groups for window in group.windows]
    gaps = [window.session_gap for window in windows if window.session_gap is not None]
    known = [*(int(period.pace) for period in periods_of(windows)), *gaps]
    if not known:
        raise DataError(
            "no query has windows in time whose slices could be held back",
            hint="what marks and counts bound is always passed on at once",
        )
    return min(known)


def _pieces(stamps: Ints, slide: int) -> Iterator[tuple[int, int]]:
    """The events that a node sees together."""
    ticks = (stamps - stamps[0]) // max(slide // _PIECES, 1)
    bounds = [0, *(np.flatnonzero(np.diff(ticks)) + 1).tolist(), len(stamps)]
    yield from pairwise(bounds)


def _sample(
    queries: tuple[str, ...], touches: list[tuple[float, Touch]], each: float
) -> SampledGroup:
    """Slices of different lengths are stretched to one: a policy sees only the share passed."""
    start = np.concatenate([touch[0] for _, touch in touches]).astype(float)
    end = np.concatenate([touch[1] for _, touch in touches]).astype(float)
    keys = np.concatenate([touch[2] for _, touch in touches])
    now = np.repeat([at for at, _ in touches], [len(touch[0]) for _, touch in touches])
    length = float(np.median(end - start)) / 1e6
    starts, rank = np.unique(start, return_inverse=True)
    passed = np.clip((now - start) / np.maximum(end - start, 1.0), 0.0, 1 - 1e-9)
    made = Arrivals.at((rank + passed) * length, keys, length, len(starts), max(each, 1.0))
    return SampledGroup(queries, made, max(each, 1.0))


def advise(sample: SampledGroup, bandwidth: float) -> list[PolicyRow]:
    """What each policy would cost on a link that carries so many bytes a second."""
    given, line = sample.arrivals, SendQueue.steady(bandwidth)
    rows = []
    for policy in POLICIES:
        if policy == "streaming":
            made = streaming(given, line)
        elif policy == "optimal":
            made = optimal(given, line)
        else:
            made = run(given, line, parse(policy), believed=Estimate(), count=_TICKS)
        total = float(made.traffic.sum())
        late = made.staleness * given.length
        hourly = 3600 * total / (given.windows * given.length)
        mean, most = float(late.mean()), float(late.max())
        rows.append(PolicyRow(policy, bandwidth, made.ratio(), hourly, mean, most))
    return rows
