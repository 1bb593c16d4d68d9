"""The queries of the demo: a mix of 25, and what dashboards, alerts and reports ask beside it."""

from __future__ import annotations

from collections.abc import Iterable

import catchment as ct
from catchment.model.query import Query


def hundred() -> list[Query]:
    """A hundred queries, as a team of people would have them over one stream."""
    return [*mix(), *_dashboards(), *_zones(), *_alerts(), *_reports(), *_stretches()]


def mix() -> list[Query]:
    """25 of every window type, several functions, keys and predicates; some are said twice."""
    return [*_fixed_windows(), *_data_windows(), *_distributions()]


def _fixed_windows() -> Iterable[Query]:
    ten = ct.tumbling("10s")
    yield Query(
        "speed", ct.avg("v").alias("mean"), ct.max("v").alias("top"), by="player", window=ten
    )
    yield Query("speed_1s", ct.avg("v").alias("mean"), by="player", window=ct.tumbling("1s"))
    yield Query("speed_1m", ct.avg("v").alias("mean"), by="player", window=ct.tumbling("1m"))
    # The same as the first but for its name: it costs nothing.
    yield Query(
        "coach", ct.avg("v").alias("mean"), ct.max("v").alias("top"), by="player", window=ten
    )
    yield Query("sprints", ct.count().alias("n"), by="player", where="v > 5", window=ten)
    yield Query("walking", ct.count().alias("n"), by="player", where="v <= 5", window=ten)
    yield Query("possession", ct.count().alias("n"), ct.avg("x").alias("x"), window=ten)
    yield Query("left", ct.avg("v").alias("mean"), where="x < 52.5", window=ct.tumbling("5s"))
    yield Query("right", ct.avg("v").alias("mean"), where="x >= 52.5", window=ct.tumbling("5s"))
    yield Query("even", ct.stddev("v").alias("sd"), ct.variance("v").alias("var"), window=ten)
    yield Query(
        "area", ct.range("x").alias("dx"), ct.range("y").alias("dy"), by="player", window=ten
    )
    yield Query(
        "energy", ct.sum("v * v").alias("energy"), by="player", window=ct.sliding("60s", "10s")
    )
    yield Query(
        "trend",
        ct.first("v").alias("from"),
        ct.last("v").alias("to"),
        by="player",
        window=ct.sliding("10s", "5s"),
    )
    yield Query(
        "kick_off",
        ct.count().alias("n"),
        ct.avg("v").alias("mean"),
        window=ct.fixed("2026-01-01 00:00:00", "2026-01-01 00:00:10"),
    )


def _data_windows() -> Iterable[Query]:
    yield Query(
        "spells",
        ct.count().alias("n"),
        ct.max("v").alias("top"),
        by="player",
        window=ct.session("1s"),
    )
    yield Query("play", ct.count().alias("n"), window=ct.session("2s"))
    yield Query(
        "laps",
        ct.count().alias("n"),
        ct.max("v").alias("top"),
        by="player",
        window=ct.cut("event = 'start'"),
    )
    yield Query(
        "runs",
        ct.avg("v").alias("mean"),
        ct.last("x").alias("x"),
        by="player",
        window=ct.between(start="event = 'start'", end="event = 'end'"),
    )
    yield Query("thousand", ct.avg("v").alias("mean"), by="player", window=ct.count_tumbling(1000))
    yield Query("rolling", ct.max("v").alias("top"), window=ct.count_sliding(20_000, 5_000))


def _distributions() -> Iterable[Query]:
    ten = ct.sliding("10s", "5s")
    yield Query("median", ct.median("v").alias("median"), by="player", window=ten)
    yield Query(
        "top_speed",
        ct.quantile("v", 0.95).alias("p95"),
        ct.quantile("v", 0.99).alias("p99"),
        by="player",
        window=ten,
    )
    yield Query("sketch", ct.approx_median("v").alias("median"), window=ct.tumbling("10s"))
    yield Query("squad", ct.count_distinct("player").alias("players"), window=ct.tumbling("10s"))
    yield Query("places", ct.approx_count_distinct("x").alias("n"), window=ct.tumbling("10s"))


def _dashboards() -> Iterable[Query]:
    """Four panels, each at six resolutions."""
    panels = {
        "mean": ct.avg("v").alias("mean"),
        "top": ct.max("v").alias("top"),
        "ground": ct.sum("v").alias("metres"),
        "steps": ct.count().alias("n"),
    }
    for length in ("1s", "2s", "5s", "10s", "30s", "1m"):
        for name, panel in panels.items():
            yield Query(f"{name}_{length}", panel, by="player", window=ct.tumbling(length))


def _zones() -> Iterable[Query]:
    """Who is where: six zones of the pitch, each at two resolutions."""
    thirds = {"back": "x < 35", "middle": "x >= 35 AND x < 70", "front": "x >= 70"}
    halves = {"left": "y < 34", "right": "y >= 34"}
    for third, along in thirds.items():
        for half, across in halves.items():
            for length in ("10s", "1m"):
                yield Query(
                    f"{third}_{half}_{length}",
                    ct.count().alias("n"),
                    ct.avg("v").alias("mean"),
                    where=f"{along} AND {across}",
                    window=ct.tumbling(length),
                )


def _alerts() -> Iterable[Query]:
    """How often a player was faster or slower in the last five seconds, every second."""
    for limit in (3, 4, 5, 6, 7, 8):
        yield Query(
            f"faster_{limit}",
            ct.count().alias("n"),
            by="player",
            where=f"v > {limit}",
            window=ct.sliding("5s", "1s"),
        )
    for limit in (1, 2):
        yield Query(
            f"slower_{limit}",
            ct.count().alias("n"),
            by="player",
            where=f"v < {limit}",
            window=ct.sliding("5s", "1s"),
        )


def _reports() -> Iterable[Query]:
    """Over the last while, all players together, and the distribution of their speeds."""
    for length in ("20s", "30s", "2m", "5m"):
        yield Query(
            f"lately_{length}",
            ct.avg("v").alias("mean"),
            by="player",
            window=ct.sliding(length, "10s"),
        )
    for length in ("1s", "5s", "30s", "1m"):
        yield Query(
            f"all_{length}",
            ct.count().alias("n"),
            ct.avg("v").alias("mean"),
            ct.stddev("v").alias("sd"),
            window=ct.tumbling(length),
        )
    for share in (50, 90, 99):
        yield Query(
            f"p{share}",
            ct.quantile("v", share / 100).alias("v"),
            by="player",
            window=ct.tumbling("30s"),
        )
        yield Query(
            f"sketch_p{share}",
            ct.approx_quantile("v", share / 100).alias("v"),
            by="player",
            window=ct.tumbling("10s"),
        )
    yield Query("seen", ct.count_distinct("player").alias("players"), window=ct.tumbling("1m"))
    yield Query("so_far", ct.sum("v").alias("metres"), by="player", window=ct.cumulate("1m", "10s"))
    yield Query(
        "from_to",
        ct.first("x").alias("from"),
        ct.last("x").alias("to"),
        by="player",
        window=ct.sliding("30s", "10s"),
    )
    yield Query(
        "second_half",
        ct.count().alias("n"),
        by="player",
        window=ct.fixed("2026-01-01 00:00:30", "2026-01-01 00:01:30"),
    )
    for length in ("5s", "30s", "1m"):
        yield Query(
            f"reach_{length}",
            ct.range("x").alias("dx"),
            ct.range("y").alias("dy"),
            by="player",
            window=ct.tumbling(length),
        )


def _stretches() -> Iterable[Query]:
    """Windows that the events themselves begin and end."""
    for gap in ("500ms", "2s", "5s"):
        yield Query(f"spells_{gap}", ct.avg("v").alias("mean"), by="player", window=ct.session(gap))
    yield Query("pauses", ct.max("v").alias("top"), window=ct.session("1s"))
    for size in (500, 2_000, 5_000):
        yield Query(
            f"last_{size}", ct.avg("v").alias("mean"), by="player", window=ct.count_tumbling(size)
        )
    yield Query("hundred_thousand", ct.avg("v").alias("mean"), window=ct.count_tumbling(100_000))
    yield Query(
        "finishes",
        ct.count().alias("n"),
        ct.avg("v").alias("mean"),
        by="player",
        window=ct.cut("event = 'end'"),
    )
    yield Query(
        "attacks",
        ct.count().alias("n"),
        ct.max("x").alias("front"),
        by="player",
        window=ct.between(start="event = 'start' AND v > 2", end="event = 'end'"),
    )
