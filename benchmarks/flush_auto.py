"""`auto` against every fixed policy, under a weight and under targets; levels and groups."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figure import Figure, below, plain
from benchmarks.flush_runs import FIXED, Load, done, edge, loads
from catchment.flush import parse, read
from catchment.flush.bandwidth import Estimate
from catchment.flush.line import SendQueue
from catchment.flush.settings import WEIGHT
from catchment.simulate.edge import Edge, run
from catchment.simulate.outcome import Outcome, merged
from catchment.simulate.wire import Wire

_HOUR = 3600.0


def figures(quick: bool = False) -> Iterator[Figure]:
    windows = 8 if quick else 24
    weights = (WEIGHT,) if quick else (1.0, WEIGHT, 100.0)
    yield from against_all(windows, weights)
    yield from targets(windows)
    yield from levels(4 if quick else 10)
    yield from groups(4 if quick else 10)


def auto(load: Load, section: object) -> Outcome:
    """`auto` with a goal, learning what the link carries."""
    return Edge([load.arrivals], Wire(load.line, Estimate()), read(section)).run()[0]


def against_all(windows: int, weights: tuple[float, ...]) -> Iterator[Figure]:
    """In the weighted cost, on every workload."""
    worst: dict[float, tuple[float, str]] = dict.fromkeys(weights, (0.0, ""))
    for load in loads(windows):
        fixed = {policy: done(load.arrivals, load.line, policy) for policy in FIXED}
        for weight in weights:
            ours = auto(load, {"weight": weight}).cost(weight)
            costs = {policy: made.cost(weight) for policy, made in fixed.items()}
            best = min(costs, key=lambda policy: costs[policy])
            found = ours / costs[best]
            worst[weight] = max(worst[weight], (found, load.name))
            if weight == WEIGHT:
                yield plain(
                    f"cost of auto, {load.name}",
                    found,
                    "of the best fixed policy's",
                    f"{ours:.3f}; the best is {best}, {costs[best]:.3f}; batching "
                    f"{costs['batching']:.3f}, streaming {costs['streaming']:.3f}, hybrid(0.25) "
                    f"{costs['hybrid(0.25)']:.3f}; weight {weight:g}",
                )
    for weight, (found, name) in worst.items():
        yield below(
            f"cost of auto, worst workload, weight {weight:g}",
            found,
            "of the best fixed policy's",
            1.1,
            f"traffic over the optimum, plus {weight:g} for staleness of a window; {name}; "
            f"{windows} windows from an untaught start",
        )


def targets(windows: int) -> Iterator[Figure]:
    """As little traffic as meets a target, as little staleness as meets a budget."""
    given = edge("large", windows)
    load = Load("large", given, SendQueue.steady(2 * given.rate))
    seconds = 60
    made = auto(load, {"staleness": f"{seconds}s"})
    late = made.staleness[windows // 2 :] * _HOUR
    batching = done(given, load.line, "batching")
    yield below(
        f"staleness under a target of {seconds} s",
        float(late.mean()) / seconds,
        "of the target",
        1.0,
        f"second half of {windows} windows of an hour; traffic {made.ratio(windows // 2):.3f} "
        f"of optimal; batching is {batching.stale() * _HOUR:.0f} s late",
    )
    budget = 1.1 * float(given.distinct().max()) / _HOUR
    held = auto(load, {"budget": f"{budget:.6f} B/s"})
    most = float(held.traffic[windows // 2 :].max()) / _HOUR
    yield below(
        "traffic under a budget, in the busiest window",
        most / budget,
        "of the budget",
        1.02,
        f"second half of {windows} windows; the budget is 1.1 times the least that the busiest "
        f"needs; staleness {held.stale(windows // 2) * _HOUR:.1f} s",
    )


def levels(windows: int) -> Iterator[Figure]:
    """Edges under a node in between, each with its policy: what arrives late goes on at once."""
    found = {}
    for policy in ("auto", "batching"):
        below_ = [
            done(
                edge("large", windows, seed=n),
                SendQueue.steady(2 * edge("large", windows).rate),
                policy,
            )
            for n in range(3)
        ]
        above = merged(below_)
        line = SendQueue.steady(3 * edge("large", windows).rate)
        found[policy] = run(above, line, parse(policy), believed=Estimate())
    ours, theirs = found["auto"], found["batching"]
    yield below(
        "staleness over two levels, auto",
        ours.stale(1) / theirs.stale(1),
        "of batching's",
        0.35,
        f"3 edges, a node in between, the center; {100 * ours.stale(1):.3f} and "
        f"{100 * theirs.stale(1):.3f} % of the window; updates on the upper link "
        f"{ours.traffic[1:].sum() / theirs.traffic[1:].sum():.3f} of batching's",
    )


def groups(windows: int) -> Iterator[Figure]:
    """Windows of an hour and of a quarter share a link by their priorities."""
    long = edge("large", windows)
    short = edge("medium", windows, seed=1).hopping(4)
    found: dict[str, tuple[float, float]] = {}
    for name, weights in (("equal", (1.0, 1.0)), ("long ones 4 to 1", (4.0, 1.0))):
        wire = Wire(SendQueue.steady(1.2 * long.rate), Estimate())
        made = Edge([long, short], wire, read("auto"), weights=weights).run()
        found[name] = (made[0].cost(WEIGHT, 1), made[1].cost(WEIGHT, 1))
    ours, theirs = found["equal"], found["long ones 4 to 1"]
    yield plain(
        "cost of a group on a shared link with four times the priority",
        theirs[0] / ours[0],
        "of its cost with equal shares",
        f"the other's {theirs[1] / ours[1]:.3f}; windows of an hour and of a quarter of an hour; "
        f"equal: {ours[0]:.3f} and {ours[1]:.3f}",
    )
