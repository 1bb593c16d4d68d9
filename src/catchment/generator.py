"""A seeded generator of soccer-like sensor events, for demos, tests and load.

Players run over a pitch along smooth curves and carry a sensor: each event has a time, a key (the
player), values (speed and position) and now and then a marker, as in Desis, section 6.1.2. Events
are made in blocks of a fixed size, each from its own random numbers, so that a stream depends only
on the settings, never on the size of the batches it is read in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.errors import QueryError
from catchment.model.duration import Duration, Instant, instant, micros
from catchment.operators.ragged import Floats, Ints

GeneratedColumns = dict[str, npt.NDArray[Any]]

BLOCK = 1 << 16
LENGTH, WIDTH = 105.0, 68.0  # of the pitch, in metres
_PURPOSES = {"player": 0, "event": 1, "late": 2}


@cache
def _markers() -> pa.Array[Any]:
    """Made when it is needed: Arrow imports pandas, if it is there, to make its first array."""
    return pa.array([None, "start", "end"])


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Events of `keys` players, `rate` of them in each second of event time, from `start` on.

    - `gaps=(every, length)`: after every `every` of play all sensors are silent for `length`; a
      session of a shorter gap ends there.
    - `markers`: the share of events that carry `event` = 'start' or 'end' (one as likely as the
      other); in all others it is null.
    - `late_share`: the share of events that are late. A late event arrives after events that are up
      to `late_by` newer: its delay is drawn evenly from (0, `late_by`]. The rest arrive in order of
      time. Lateness changes only the order of arrival, not the events.
    - `key_skew`: 0 makes all players equally busy; s > 0 gives the player of rank r a share in
      proportion to 1 / r ** s (Zipf).
    - `string_keys=False` names players by whole numbers, which is cheaper.

    >>> events = Generator(seed=7, keys=3, rate=10).table(100)
    >>> events.num_rows, events.column_names
    (100, ['ts', 'player', 'v', 'x', 'y', 'event', 'seq'])
    >>> events == Generator(seed=7, keys=3, rate=10).table(100)
    True
    """

    seed: int = 0
    keys: int = 10
    rate: float = 100_000
    start: Instant = "2026-01-01"
    gaps: tuple[Duration, Duration] | None = None
    markers: float = 0.001
    late_share: float = 0.0
    late_by: Duration = "2s"
    key_skew: float = 0.0
    string_keys: bool = True

    def __post_init__(self) -> None:
        _whole("seed", self.seed, least=0)
        _whole("keys", self.keys, least=1)
        _number("rate", self.rate, least=1e-6, most=1e9)
        _number("key_skew", self.key_skew, least=0, most=100)
        _number("markers", self.markers, least=0, most=1)
        _number("late_share", self.late_share, least=0, most=1)
        _positive("late_by", self.late_by)
        instant(self.start, "generator's start")
        for name, value in zip(("every", "length"), self.gaps or (), strict=False):
            _positive(f"gaps {name}", value)
        if self.gaps is not None and len(self.gaps) != 2:
            raise QueryError(
                "gaps takes two durations",
                given=repr(self.gaps),
                hint='write gaps=("30s", "5s") for 5 seconds of silence after every 30',
            )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events."""
        return pa.schema(
            {
                "ts": pa.timestamp("us", tz="UTC"),
                "player": pa.string() if self.string_keys else pa.int64(),
                "v": pa.float64(),
                "x": pa.float64(),
                "y": pa.float64(),
                "event": pa.string(),
                "seq": pa.int64(),
            }
        )

    def table(self, rows: int) -> pa.Table:
        """The first `rows` events to arrive."""
        _whole("rows", rows, least=0)
        return pa.Table.from_batches(self.batches(max(rows, 1), rows), self.schema)

    def batches(
        self, rows_per_batch: int, rows: int | None = None, skip: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """The events in order of arrival; without `rows`, endlessly.

        The first `skip` events are left out, without the time it takes to make them.
        """
        _whole("rows_per_batch", rows_per_batch, least=1)
        _whole("skip", skip, least=0)
        return self._batches(rows_per_batch, math.inf if rows is None else rows, skip)

    def _batches(self, size: int, rows: float, skip: int) -> Iterator[pa.RecordBatch]:
        blocks, before = _Blocks(self).seek(skip)
        held: GeneratedColumns | None = None
        while before < skip:
            block = next(blocks)
            held = {name: column[skip - before :] for name, column in block.items()}
            before += len(block["ts"])
        arrived, end = skip, skip + rows
        while arrived < end:
            wanted = int(min(size, end - arrived))
            parts = [held] if held is not None else []
            have = sum(len(part["ts"]) for part in parts)
            while have < wanted:
                parts.append(next(blocks))
                have += len(parts[-1]["ts"])
            joined = _join(parts)
            held = {name: column[wanted:] for name, column in joined.items()}
            yield self._batch({name: c[:wanted] for name, c in joined.items()}, arrived)
            arrived += wanted

    def _batch(self, columns: GeneratedColumns, arrived: int) -> pa.RecordBatch:
        keys, marker = columns["player"], columns["event"]
        arrays = [
            pa.array(columns["ts"]).cast(self.schema.field("ts").type),
            self._names.take(keys) if self.string_keys else pa.array(keys),
            pa.array(columns["v"]),
            pa.array(columns["x"]),
            pa.array(columns["y"]),
            _markers().take(marker),
            pa.array(np.arange(arrived, arrived + len(marker), dtype=np.int64)),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @cached_property
    def _names(self) -> pa.StringArray:
        digits = len(str(self.keys - 1))
        return pa.array([f"player-{number:0{digits}}" for number in range(self.keys)])


class _Blocks:
    """The events of a generator, block by block, as NumPy columns."""

    def __init__(self, settings: Generator) -> None:
        self.settings = settings
        self.start = instant(settings.start)
        self.gaps = [micros(value) for value in settings.gaps or ()]
        self.late_by = micros(settings.late_by)
        self.curves = _curves(self._random("player", 0), settings.keys)
        weights = 1.0 / np.arange(1, settings.keys + 1) ** settings.key_skew
        self.shares = np.cumsum(weights) / weights.sum()

    def seek(self, place: int) -> tuple[Iterator[GeneratedColumns], int]:
        """Blocks in order of arrival up to the event at a place and on, and how many came before.

        Late events wait for `late_by` at most, so it is enough to begin that much earlier.
        """
        last = place // BLOCK
        first = last
        if self.settings.late_share:
            known = self._end(last - 1)
            while first > 0 and self._end(first - 1) + self.late_by > known:
                first -= 1
        blocks = self.arrivals(first)
        passed = sum(len(next(blocks)["ts"]) for _ in range(first, last))
        return blocks, first * BLOCK + passed

    def arrivals(self, first: int = 0) -> Iterator[GeneratedColumns]:
        """Blocks in order of arrival; a late event moves to the block that it arrives in.

        No event of a later block arrives before that block's first instant, so what arrives before
        it is in its final order.
        """
        waiting: GeneratedColumns | None = None
        for number in count(first):
            block = self._events(number)
            if not self.settings.late_share:
                yield block
                continue
            block["arrival"] = block["ts"] + self._delays(number)
            known = _join([waiting, block]) if waiting is not None else block
            ends = self._end(number)
            # A stable sort: of two that arrive at once the earlier event comes first.
            order = np.argsort(known["arrival"], kind="stable")
            cut = int(np.searchsorted(known["arrival"][order], ends))
            # What waits stays in the order it was made in, so that a tie is always broken alike.
            late = np.sort(order[cut:])
            waiting = {name: column[late] for name, column in known.items()}
            yield {name: column[order[:cut]] for name, column in known.items()}

    def _events(self, number: int) -> GeneratedColumns:
        """The events number `number * BLOCK` to `(number + 1) * BLOCK - 1`, in order of time."""
        random = self._random("event", number)
        ts = self._times(np.arange(number * BLOCK, (number + 1) * BLOCK) + random.random(BLOCK))
        player = self._players(random.random(BLOCK))
        x, y, speed = self._movement(player, (ts - self.start).astype(np.float64) * 1e-6)
        noise = random.random(BLOCK) - 0.5
        dice = random.random(BLOCK)
        share = self.settings.markers
        marker = (dice < share).astype(np.int8) + (dice < share / 2)
        # Sensors resolve a millimetre; rounding also hides how a machine computes a sine.
        return {
            "ts": ts,
            "player": player,
            "v": np.round(np.maximum(speed + noise, 0.0), 3),
            "x": np.round(x, 3),
            "y": np.round(y, 3),
            "event": marker,
        }

    def _end(self, number: int) -> int:
        """The first instant of the next block."""
        return int(self._times(np.array([float((number + 1) * BLOCK)]))[0])

    def _times(self, positions: Floats) -> Ints:
        """Event times of positions in the stream, silences put in between."""
        played: Ints = np.floor(positions * (1e6 / self.settings.rate)).astype(np.int64)
        if self.gaps:
            every, length = self.gaps
            played += played // every * length
        return played + self.start

    def _players(self, dice: Floats) -> Ints:
        if self.settings.key_skew:
            drawn = np.searchsorted(self.shares, dice, side="right").astype(np.int64)
        else:
            drawn = (dice * self.settings.keys).astype(np.int64)
        # Rounding may carry a draw past the last player.
        return np.minimum(drawn, self.settings.keys - 1)

    def _movement(self, player: Ints, seconds: Floats) -> tuple[Floats, Floats, Floats]:
        """Where the players are, in metres, and how fast, in metres per second."""
        where, speed = [], []
        for extent, (size, turn, phase) in zip((LENGTH, WIDTH), self.curves, strict=True):
            angle = turn[player] * seconds + phase[player]
            where.append(extent / 2 + size[player] * np.sin(angle))
            speed.append((size * turn)[player] * np.cos(angle))
        return where[0], where[1], np.hypot(*speed)

    def _delays(self, number: int) -> Ints:
        random = self._random("late", number)
        late = random.random(BLOCK) < self.settings.late_share
        delay = random.integers(1, self.late_by, BLOCK, endpoint=True)
        return np.where(late, delay, 0)

    def _random(self, purpose: str, number: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, _PURPOSES[purpose], number])


def _curves(random: np.random.Generator, keys: int) -> list[tuple[Floats, Floats, Floats]]:
    """Along and across the pitch: every player's amplitude (m), turning rate (1/s) and phase."""
    return [
        (
            random.uniform(0.1, 0.5, keys) * extent,
            random.uniform(0.05, 0.2, keys),
            random.uniform(0, 2 * np.pi, keys),
        )
        for extent in (LENGTH, WIDTH)
    ]


def _join(parts: list[GeneratedColumns]) -> GeneratedColumns:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[-1]}


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise QueryError(
            f"the generator's {name} must be a whole number of at least {least}", given=repr(value)
        )


def _number(name: str, value: object, least: float, most: float) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise QueryError(
            f"the generator's {name} must be a number from {least:g} to {most:g}",
            given=repr(value),
        )


def _positive(name: str, value: Duration) -> None:
    if micros(value, f"generator's {name}") <= 0:
        raise QueryError(
            f"the generator's {name} must be longer than zero", given=repr(value), hint='try "2s"'
        )
