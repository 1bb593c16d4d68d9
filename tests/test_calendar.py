"""Windows of a calendar: where days and months begin, and what windows hold, against `zoneinfo`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import CatchmentError
from catchment.job.window import read_window
from catchment.model.calendar import Calendar, time_zone, zone_names
from catchment.model.window import Period, Window, window_from_dict
from catchment.planner.edges import Edges, Series
from catchment.simulate import World
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import first_shown, oracle
from catchment.windows.calendar import CalendarWindow
from small_tables import SOAK, examples
from trees import charter, check

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
DAY = 24 * HOUR


def at(text: str, zone: str = "UTC") -> int:
    """Microseconds since 1970 of what the clock of a zone shows for the first time."""
    shown = datetime.fromisoformat(text).replace(tzinfo=time_zone(zone))
    return (shown.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def shown(zone: str, time: int) -> datetime:
    """What the clocks of a zone show."""
    moment = EPOCH + timedelta(microseconds=time)
    return moment.astimezone(time_zone(zone)).replace(tzinfo=None)


def days(first: str, last: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of all days from one to another."""
    low, high = (date.fromisoformat(day).toordinal() - 719_163 for day in (first, last))
    return np.arange(low, high + 1)


# -- where days and months begin ------------------------------------------------------------------


def distinct_zones() -> Iterator[str]:
    """One zone of each set of names for the same rules."""
    seen: set[bytes] = set()
    for zone in zone_names():
        rules = resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()
        if rules not in seen:
            seen.add(rules)
            yield zone


@pytest.mark.slow
def test_every_day_of_every_zone_for_thirty_years() -> None:
    """When a day begins the clock shows midnight, or a later time where it was put forward or the
    day left out. Just before, the clock shows an earlier time."""
    numbers = days("2001-01-01", "2031-01-01")
    midnights = [datetime(1970, 1, 1) + timedelta(days=number) for number in numbers.tolist()]
    zones = list(distinct_zones())
    assert len(zones) > 250
    if not SOAK:  # there all of them, here every fourth
        zones = zones[::4]
    moments = 0
    for zone in zones:
        begins = Calendar("day", zone).times(numbers)
        assert (np.diff(begins) >= 0).all()
        rules = time_zone(zone)
        steps = np.diff(begins, prepend=begins[0]) != DAY
        changed = steps | np.roll(steps, -1)
        for midnight, begin, odd in zip(midnights, begins.tolist(), changed.tolist(), strict=True):
            moment = EPOCH + timedelta(0, 0, begin)
            clock = moment.astimezone(rules).replace(tzinfo=None)
            assert clock >= midnight, (zone, midnight)
            if odd or clock != midnight:
                moments += 1
                before = (moment - timedelta(microseconds=1)).astimezone(rules)
                assert before.replace(tzinfo=None) < midnight, (zone, midnight)
    assert moments > 40 * len(zones)


@pytest.mark.parametrize("seed", range(3))
def test_days_and_months_as_looked_for_by_half_hours(seed: int) -> None:
    """Any zone, any year since 1850, any time of day: as the oracle finds it, which walks."""
    dice = random.Random(seed)
    zones = zone_names()
    for _ in range(150):
        zone, shift = dice.choice(zones), dice.choice([0, 0, 6 * HOUR, dice.randrange(DAY)])
        number = dice.randrange(-43_000, 30_000)
        clock = datetime(1970, 1, 1) + timedelta(days=number, microseconds=shift)
        begins = int(Calendar("day", zone, shift).times(np.array([number]))[0])
        assert begins == first_shown(zone, clock), (zone, clock)
        month = number // 31
        first = datetime(1970 + month // 12, month % 12 + 1, 1) + timedelta(microseconds=shift)
        begins = int(Calendar("month", zone, shift).times(np.array([month]))[0])
        assert begins == first_shown(zone, first), (zone, first)


CHANGES = [
    # What the clock does, around which days.
    ("Europe/Berlin", "2024-03-25", "2024-04-02"),  # forward at 02:00
    ("Europe/Berlin", "2024-10-20", "2024-10-30"),  # back at 03:00
    ("Australia/Lord_Howe", "2024-04-01", "2024-04-10"),  # back by half an hour
    ("Australia/Lord_Howe", "2024-10-01", "2024-10-10"),
    ("America/Sao_Paulo", "2018-10-30", "2018-11-07"),  # forward at midnight: it is never shown
    ("America/Sao_Paulo", "2018-02-14", "2018-02-20"),  # back at midnight
    ("America/St_Johns", "2010-10-30", "2010-11-10"),  # back at 00:01, over midnight
    ("Pacific/Apia", "2011-12-27", "2012-01-03"),  # a day left out
    ("Pacific/Kwajalein", "1993-08-18", "1993-08-25"),  # another
    ("America/Juneau", "1867-10-15", "1867-10-22"),  # a day twice
    ("Asia/Manila", "1844-12-28", "1845-01-03"),  # the last day of a year left out
    ("Asia/Kathmandu", "1985-12-29", "1986-01-03"),  # by fifteen minutes, at new year
    ("Africa/Casablanca", "2024-03-08", "2024-04-16"),  # back for a month, and forward
]


@pytest.mark.parametrize(("zone", "first", "last"), CHANGES)
def test_days_around_changes_of_the_clock(zone: str, first: str, last: str) -> None:
    numbers = days(first, last)
    calendar = Calendar("day", zone)
    begins = calendar.times(numbers)
    clocks = [datetime(1970, 1, 1) + timedelta(days=number) for number in numbers.tolist()]
    assert begins.tolist() == [first_shown(zone, clock) for clock in clocks]
    # Every quarter of an hour is in the last day that has begun.
    moments = np.arange(begins[0], begins[-1], HOUR // 4)
    expected = numbers[np.searchsorted(begins, moments, side="right") - 1]
    assert (calendar.numbers(moments) == expected).all()
    assert (calendar.numbers(begins[1:] - 1) < calendar.numbers(begins[1:])).all()


def test_the_day_that_apia_left_out() -> None:
    begins = Calendar("day", "Pacific/Apia").times(days("2011-12-29", "2012-01-01"))
    assert np.diff(begins).tolist() == [DAY, 0, DAY]
    assert shown("Pacific/Apia", int(begins[1]) - 1).date() == date(2011, 12, 29)
    assert shown("Pacific/Apia", int(begins[1])).date() == date(2011, 12, 31)


@given(st.sampled_from(zone_names()), st.integers(-(1 << 60), 1 << 60), st.sampled_from("dm"))
def test_times_and_numbers_agree_as_far_as_times_go(zone: str, time: int, unit: str) -> None:
    calendar = Calendar("day" if unit == "d" else "month", zone)
    number = calendar.numbers(np.array([time]))
    begin, end = calendar.times(number)[0], calendar.times(number + 1)[0]
    assert begin <= time < end
    assert end - begin <= calendar.reach(1)


def test_the_calendar_repeats_after_400_years() -> None:
    calendar = Calendar("day", "Europe/Berlin")
    numbers = days("9700-01-01", "9700-12-31")
    cycle = 146_097
    assert (calendar.times(numbers + cycle) == calendar.times(numbers) + cycle * DAY).all()
    long_ago = days("0200-01-01", "0200-12-31")
    assert (calendar.times(long_ago - cycle) == calendar.times(long_ago) - cycle * DAY).all()


# -- edges and series ------------------------------------------------------------------------------


@given(
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns"]),
    length=st.integers(1, 9),
    slide=st.integers(1, 9),
    offset=st.integers(-5, 5),
    low=st.integers(at("2011-11-01"), at("2012-02-01")),
    span=st.integers(0, 40 * DAY),
)
def test_edges_are_all_starts_and_ends_in_a_range(
    zone: str, length: int, slide: int, offset: int, low: int, span: int
) -> None:
    scale = Calendar("day", zone)
    period = Period(length, slide, offset, scale=scale)
    first = int(scale.numbers(np.array([low]))[0])
    starts = [k for k in range(first - 60, first + 120) if (k - offset) % slide == 0]
    points = sorted({*starts, *(k + length for k in starts)})
    times = np.unique(scale.times(np.array(points)))
    edges = Edges([period])
    found = edges.between(low, low + span)
    inside = times[(times > low) & (times <= low + span)]
    assert found[1:-1].tolist() == inside.tolist()
    assert found[0] <= low and found[-1] > low + span
    assert edges.covers(times[10:-10]).all()
    assert not edges.covers(times[10:-10] + 1).any()
    series = Series([period])
    kinds = np.zeros(1, np.int64)
    number = series.ending_after(low)
    assert series.end_of(kinds, number)[0] > low >= series.end_of(kinds, number - 1)[0]
    number = series.starting_by(low)
    assert series.start_of(kinds, number)[0] <= low < series.start_of(kinds, number + 1)[0]


# -- windows ---------------------------------------------------------------------------------------

LENGTHS = ["1d", "2 days", "1w", "10 days", "1 month", "2 months", "1 quarter", "1 year"]


@st.composite
def calendar_windows(draw: st.DrawFn) -> Window:
    zone = draw(st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns"]))
    months = draw(st.booleans())
    if months:
        length, slide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        offset = draw(st.sampled_from(["0s", "1 month", "14 days 6h", "-5 months"]))
        return ct.sliding(f"{length} months", f"{slide} months", offset=offset, zone=zone)
    length, slide = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    offset = draw(st.sampled_from(["0s", "6h", "-1 day", "3d 2h"]))
    return ct.sliding(f"{length}d", f"{slide}d", offset=offset, zone=zone)


def events(times: list[int]) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": [time % 3 for time in times],
            "v": [time % 7 for time in times],
        }
    )


@examples(0.6)
@given(
    windows=st.lists(calendar_windows(), min_size=1, max_size=3),
    base=st.sampled_from(["2011-12-20", "1969-12-20", "2024-03-20", "2010-11-01"]),
    hours=st.lists(st.integers(0, 24 * 60), min_size=1, max_size=30),
    batch=st.integers(1, 10),
)
def test_an_engine(windows: list[Window], base: str, hours: list[int], batch: int) -> None:
    """Some calendar windows, a plain one and sessions, in one engine, batch by batch."""
    times = [at(base) + hour * HOUR for hour in hours]
    queries = [
        ct.Query(f"q{n}", ct.sum("v").alias("s"), ct.count().alias("n"), by="k", window=window)
        for n, window in enumerate([*windows, ct.tumbling("1d"), ct.session("5h")])
    ]
    truth = oracle(queries, events(times).to_pylist())
    engine = ct.Engine(queries)
    found: dict[str, list[pa.Table]] = {query.name: [] for query in queries}
    for begin in range(0, len(times), batch):
        engine.push(events(times[begin : begin + batch]))
        rest = times[begin + batch :]
        results = engine.advance(min(rest)) if rest else engine.close()
        for name in found:
            found[name].append(results[name])
    for query in queries:
        assert_same(truth[query.name], pa.concat_tables(found[query.name]), query.name)


@examples(0.3)
@given(window=calendar_windows(), hours=st.lists(st.integers(0, 24 * 40), min_size=1, max_size=15))
def test_late_events_correct_and_a_snapshot_goes_on(window: Window, hours: list[int]) -> None:
    times = [at("2011-12-10") + hour * HOUR for hour in hours]
    query = ct.Query("q", ct.count().alias("n"), window=window)
    engine = ct.Engine([query], late="update", keep="4000 days")
    engine.push(events(times))
    rows = rows_of(engine.advance(at("2012-02-01"))["q"])
    engine = ct.Engine.restore(engine.snapshot())
    late = at("2011-12-29 23:59:59.999999")
    engine.push(events([late]))
    rows += rows_of(engine.advance(at("2012-02-01"))["q"]) + rows_of(engine.close()["q"])
    last = {(row["window_start"], row["window_end"]): row["n"] for row in rows}
    truth = oracle([query], events([*times, late]).to_pylist())["q"]
    assert last == {(row["window_start"], row["window_end"]): row["n"] for row in truth}


@examples(0.4)
@given(
    first=calendar_windows(),
    second=calendar_windows(),
    hours=st.lists(st.integers(0, 24 * 90), min_size=4, max_size=30),
)
def test_a_query_added_to_a_running_engine(first: Window, second: Window, hours: list[int]) -> None:
    """Whatever it gives is right, and it gives every window that begins after the newest event."""
    times = sorted(at("2011-11-20") + hour * HOUR for hour in hours)
    half = len(times) // 2
    engine = ct.Engine([ct.Query("a", ct.count().alias("n"), window=first)])
    engine.push(events(times[:half]))
    engine.advance(min(times[0] + DAY, times[half]))
    added = ct.Query("b", ct.count().alias("n"), window=second)
    engine.add(added)
    engine.push(events(times[half:]))
    given_ = rows_of(engine.close()["b"])
    truth = oracle([added], events(times).to_pylist())["b"]
    late = [row for row in truth if row["window_start"] > times[half - 1]]
    bounds = {(row["window_start"], row["window_end"]): row["n"] for row in given_}
    assert (
        bounds.items()
        <= {(row["window_start"], row["window_end"]): row["n"] for row in truth}.items()
    )
    assert all((row["window_start"], row["window_end"]) in bounds for row in late)


def test_the_windows_of_a_short_and_of_a_long_day() -> None:
    # 2024-03-31 in Berlin has 23 hours, 2024-10-27 has 25.
    engine = ct.Engine(
        [ct.Query("d", ct.count().alias("n"), window=ct.tumbling("1d", zone="Europe/Berlin"))]
    )
    hours = range(at("2024-03-30", "Europe/Berlin"), at("2024-11-01", "Europe/Berlin"), HOUR)
    engine.push(events(list(hours)))
    found = {
        shown("Europe/Berlin", row["window_start"]).date().isoformat(): row["n"]
        for row in rows_of(engine.close()["d"])
    }
    assert found.pop("2024-03-31") == 23
    assert found.pop("2024-10-27") == 25
    assert set(found.values()) == {24}


def test_a_tree() -> None:
    parents = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}
    queries = [
        ct.Query("days", ct.sum("v"), by="k", window=ct.tumbling("1d", zone="Pacific/Apia")),
        ct.Query("weeks", ct.median("v"), window=ct.sliding("2w", "1w", zone="Europe/Berlin")),
        ct.Query("months", ct.count(), window=ct.tumbling("1 month")),
    ]
    dice = random.Random(5)
    arrived = {}
    for id in "abc":
        times = sorted(at("2011-12-20") + dice.randrange(20 * DAY) for _ in range(120))
        arrived[id] = [events(times[n : n + 40]) for n in (0, 40, 80)]
    world = World(charter(parents, queries), arrived, until=0)
    world.run()
    assert world.done
    check(world.deliveries, arrived, queries)


@pytest.mark.spark
def test_spark(spark: Any, tmp_path: Path) -> None:
    """A batch of an Arrow table and of a DataFrame."""
    import pyarrow.parquet as pq

    dice = random.Random(1)
    table = events([at("2011-12-01") + dice.randrange(60 * DAY) for _ in range(2000)])
    queries = [
        ct.Query("days", ct.sum("v"), by="k", window=ct.tumbling("1d", zone="Pacific/Apia")),
        ct.Query("months", ct.count(), window=ct.sliding("2 months", "1 month")),
    ]
    truth = oracle(queries, table.to_pylist())
    pq.write_table(table, tmp_path / "0.parquet")
    frame = spark.read.parquet(str(tmp_path))
    for name, events_ in (("arrow", table), ("frame", frame)):
        results = ct.run(events_, queries, spark=spark)
        for query in queries:
            assert_same(truth[query.name], results[query.name], name)


# -- the language ----------------------------------------------------------------------------------


def test_python_sql_and_yaml_say_the_same() -> None:
    window = ct.tumbling("1d", zone="Europe/Berlin")
    assert window == CalendarWindow("day", 1, 1, zone="Europe/Berlin")
    for call in (
        "window(ts, '1 day', zone => 'Europe/Berlin')",
        "window(ts, INTERVAL '1' DAY, INTERVAL '1' DAY, '0 seconds', 'Europe/Berlin')",
        "tumbling(ts, '1 day', zone => 'Europe/Berlin')",
    ):
        assert ct.sql(f"SELECT count(*) FROM e GROUP BY {call}", name="q").window == window
    assert read_window("tumbling(1d, zone=Europe/Berlin)", "window") == window
    options = {"length": "1 day", "zone": "Europe/Berlin"}
    assert read_window({"tumbling": options}, "window") == window
    assert window_from_dict(window.to_dict()) == window
    assert ct.sliding(timedelta(days=1), "1 day", zone="Europe/Berlin") == window


def test_months_are_those_of_utc_unless_a_zone_is_named() -> None:
    window = ct.tumbling("1 month")
    assert window == ct.tumbling("1 month", zone="UTC") == CalendarWindow("month", 1, 1)
    text = "SELECT count(*) FROM e GROUP BY window(ts, '1 month')"
    assert ct.sql(text, name="q").window == window
    text = "SELECT count(*) FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MONTH)) "
    assert ct.sql(f"{text}GROUP BY window_start, window_end", name="q").window == window


@pytest.mark.parametrize(
    ("window", "start", "text"),
    [
        (ct.tumbling("1w", zone="UTC"), "2024-05-13", "tumbling(1 week, zone=UTC)"),
        (ct.tumbling("1w"), "2024-05-16", "tumbling(7d)"),  # as Spark's: from a Thursday
        (
            ct.tumbling("1w", offset="-1 day", zone="UTC"),
            "2024-05-12",
            "tumbling(1 week, offset=6 days, zone=UTC)",
        ),
        (ct.tumbling("1 quarter"), "2024-04-01", "tumbling(1 quarter, zone=UTC)"),
        (
            ct.tumbling("1 year", offset="3 months"),
            "2024-04-01",
            "tumbling(1 year, offset=1 quarter, zone=UTC)",
        ),
        (
            ct.tumbling("1 month", offset="14 days 6h"),
            "2024-05-15 06:00",
            "tumbling(1 month, offset=342h, zone=UTC)",
        ),
        (ct.sliding("3 months", "1 month"), "2024-03-01", "sliding(1 quarter, 1 month, zone=UTC)"),
    ],
)
def test_where_windows_begin(window: Window, start: str, text: str) -> None:
    engine = ct.Engine([ct.Query("q", ct.count().alias("n"), window=window)])
    engine.push(events([at("2024-05-18 12:00")]))
    assert rows_of(engine.close()["q"])[0]["window_start"] == at(start)
    assert window.describe() == text


def test_zones_share_slices_of_one_group() -> None:
    zones = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"]
    queries = [
        ct.Query(f"q{n}", ct.sum("v"), window=ct.tumbling("1d", zone=zone))
        for n, zone in enumerate(zones)
    ]
    assert len(ct.Engine(queries).plan.groups) == 1


def test_windows_on_a_scale_leave_accumulators_to_others() -> None:
    apart = [
        ct.Query(f"q{n}", ct.sum("v"), window=ct.tumbling(f"{101 + 11 * n}ms")) for n in range(12)
    ]
    month = ct.Query("month", ct.sum("v"), window=ct.tumbling("1 month"))
    alone = ct.Engine(apart, rate=0.01).plan
    both = ct.Engine([*apart, month], rate=0.01).plan
    assert {group.way for group in alone.groups} == {"accumulators"}
    assert sorted(group.way for group in both.groups)[:-1] == ["accumulators"] * 12
    (group,) = [group for group in both.groups if group.way == "slices"]
    assert group.windows == (month.window,)


@pytest.mark.parametrize(
    ("make", "message", "hint"),
    [
        (lambda: ct.tumbling("1d", zone="Europ/Berlin"), "no such time zone", "Europe/Berlin"),
        (lambda: ct.tumbling("1d", zone="europe/berlin"), "no such time zone", "write Europe"),
        (lambda: ct.tumbling("1d", zone="../../etc/passwd"), "no such time zone", "name a place"),
        (lambda: ct.tumbling("1d", zone="America"), "no such time zone", "did you mean"),
        (lambda: ct.tumbling("1d", zone="+02:00"), "no such time zone", "Etc/GMT-2"),
        (lambda: ct.tumbling("1d", zone=2), "a time zone is a name", "name a place"),
        (lambda: ct.tumbling("1h", zone="UTC"), "must be whole days", "leave out the zone"),
        (lambda: ct.tumbling("1d 6h", zone="UTC"), "must be whole days", "one unit"),
        (lambda: ct.tumbling("1 month 3 days"), "mixes months and days", "45 days"),
        (lambda: ct.tumbling("1.5 months"), "breaks a calendar unit", "whole number"),
        (lambda: ct.sliding("1 month", "1 day"), "must be counted alike", "30 days"),
        (lambda: ct.sliding("1 month", "1h"), "must be whole days", "leave out"),
        (lambda: ct.tumbling("-1 month"), "must be positive", "longer than zero"),
        (lambda: ct.tumbling("0 days", zone="UTC"), "must be positive", "longer than zero"),
        (lambda: ct.tumbling("1000000 years"), "is too long", "36,000 years"),
        (lambda: ct.tumbling("1 month", offset="-1 day"), "first 28 days", "14 days"),
        (lambda: ct.tumbling("1d", offset="1 month"), "in days or shorter", "6h"),
        (lambda: ct.cumulate("1 month", "1 day"), "no fixed length", "count days"),
        (lambda: ct.session("1 month"), "no fixed length", "count days"),
        (
            lambda: ct.sql(
                "SELECT count(*) FROM e GROUP BY window(ts, '1d', zon => 'UTC')", name="q"
            ),
            "wrong arguments",
            "zone => name",
        ),
        (
            lambda: window_from_dict({**ct.tumbling("1 month").to_dict(), "zone": "Nowhere"}),
            "cannot be read",
            "",
        ),
        (
            lambda: window_from_dict({**ct.tumbling("1 month").to_dict(), "slide": 0}),
            "cannot be read",
            "",
        ),
    ],
)
def test_bad_input(make: Any, message: str, hint: str) -> None:
    with pytest.raises(CatchmentError) as caught:
        make()
    assert message in caught.value.what
    assert hint in (caught.value.hint or "")
