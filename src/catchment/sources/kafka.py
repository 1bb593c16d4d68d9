"""Topics of Kafka. The position holds the offsets; nothing is committed to Kafka."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import pyarrow as pa
import pyarrow.ipc
from pydantic import Field, PrivateAttr

from catchment.durable.folder import Folder
from catchment.errors import SourceError, UnreachableError
from catchment.model import records
from catchment.model.duration import micros
from catchment.model.section import duration_option
from catchment.sources.aside import Aside, aside
from catchment.sources.base import NeverRead, Piece, Position, Split, abridged, register_source
from catchment.sources.decode import read_stream
from catchment.sources.messages import MessageSource
from catchment.sources.needs import module

if TYPE_CHECKING:
    from catchment.sources.kafka_client import MessageBlock, TopicClient

Ends = dict[str, tuple[int, int]]

_FINEST = 10_000
"""Splits are not cut finer than this many offsets."""
_CHECK = 10.0
_SAMPLE = 1_000
_LOST = "lost.json"
_FEW = 100
"""Places of a partition that are remembered where messages were gone."""


class OffsetShare(NamedTuple):
    """The messages of a partition from one offset to before another."""

    topic: str
    partition: int
    start: int
    end: int
    schema: bytes | None
    """The columns as Arrow writes them, where the job file does not give them."""


@register_source
class Kafka(MessageSource):
    """Messages of one topic or several. A partition is "topic/number", a place is an offset.

    The position is {"topic/number": next offset}. Partitions that are added to a topic later are
    read from their beginning. Only what is committed is read, unless `options` says otherwise.
    """

    type: Literal["kafka"] = "kafka"
    servers: str = Field(description="host:port, several with commas between them")
    topic: str | tuple[str, ...]
    begin: Literal["earliest", "latest"] = Field(
        "earliest", alias="start", description="where a new job begins in a topic"
    )
    max_per_batch: int = Field(5_000_000, gt=0, description="offsets per batch, of all partitions")
    on_lost: Literal["fail", "skip"] = Field(
        "fail", description="what to do when messages were removed before they were read"
    )
    timeout: Annotated[str, duration_option("timeout")] = Field(
        "60s", description="how long to wait for a server that does not answer"
    )
    options: dict[str, str] = Field(default_factory=dict, description="options of librdkafka")

    _planner: Any = PrivateAttr(None)
    _found: pa.Schema | None = PrivateAttr(None)
    _home: Folder | None = PrivateAttr(None)
    _gone: dict[str, dict[str, int]] = PrivateAttr(default_factory=dict)
    """By partition: offsets that were wanted and were gone, and how many with each."""

    def check(self) -> None:
        planner = _client().TopicClient(
            self._client_settings(), min(_CHECK, self._timeout_seconds())
        )
        try:
            planner.check(self._topics())
        finally:
            planner.close()
        self.event_schema()

    def table(self) -> str | None:
        topics = self._topics()
        return topics[0] if len(topics) == 1 else None

    def open(self, home: Folder) -> None:
        lost = home.read(_LOST) or b"{}"
        self._gone = records.decode(dict[str, dict[str, int]], lost, f"{home.shown}/{_LOST}")
        self._home = home

    def never_read(self) -> list[NeverRead]:
        reason = "messages were removed from the topic before they were read"
        return abridged(
            NeverRead(name, reason, rows=sum(lost.values())) for name, lost in self._gone.items()
        )

    def start(self) -> Position:
        newest = self.begin == "latest"
        return {name: high if newest else low for name, (low, high) in self._ends().items()}

    def bound(self, position: Position) -> Position:
        return {**position, **{name: high for name, (_, high) in self._ends().items()}}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        ends = {n: e for n, e in self._ends().items() if bound is None or n in bound}
        tops = {n: high if bound is None else bound[n] for n, (_, high) in ends.items()}
        known = {name.rpartition("/")[0] for name in position}
        end, begins = dict(position), dict[str, int]()
        for name, (low, high) in ends.items():
            if name in position:
                begins[name] = self._next(name, position[name], low, high)
                continue
            # Only noted now and read in the next batch: its beginning must be in a position,
            # so that a batch that is read again begins at the same place.
            newest = self.begin == "latest" and name.rpartition("/")[0] not in known
            end[name] = min(high if newest else low, tops[name])
        left = {name: max(0, tops[name] - at) for name, at in begins.items()}
        for name, share in shares(left, self.max_per_batch).items():
            end[name] = max(position[name], min(begins[name] + share, tops[name]))
        return end

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        counts = {n: end[n] - start[n] for n in sorted(end) if end[n] > start.get(n, end[n])}
        size = max(_FINEST, math.ceil(sum(counts.values()) / max(1, parallel)))
        given = self._given_schema() is not None or not counts
        schema = None if given else self.event_schema().serialize().to_pybytes()
        made = []
        for name, count in counts.items():
            topic, _, number = name.rpartition("/")
            pieces = max(1, round(count / size))
            cuts = [start[name] + count * i // pieces for i in range(pieces + 1)]
            for low, high in pairwise(cuts):
                body = OffsetShare(topic, int(number), low, high, schema)
                made.append(Split(name, low * self._spread(), body, high - low))
        return made

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        topic, number, start, end, written = cast(OffsetShare, split.body)
        schema = pyarrow.ipc.read_schema(pa.py_buffer(written)) if written else self.event_schema()
        decoder = self._decoder(schema, columns)
        skip = self.on_lost == "skip"
        wanted = _client().OffsetRange(topic, number, start, end)
        for block in _client().blocks(
            self._client_settings(), wanted, self._timeout_seconds(), skip
        ):
            made = decoder.decode(block.payloads)
            bad = _gone(split.partition, block)
            for i, reason in made.bad:
                payload = block.payloads[i] or b""
                bad.append(Aside(split.partition, block.offsets[i], reason, payload))
            events = made.events if columns is None else made.events.select(columns)
            first = block.offsets[0] if block.offsets else end
            yield Piece(events, aside(bad), first * self._spread())

    def partitions(self, position: Position) -> list[str]:
        return sorted({*position, *self._names()})

    def close(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _client_settings(self) -> dict[str, str]:
        settings: dict[str, str] = _client().settings(self.servers, self.options)
        return settings

    def _timeout_seconds(self) -> float:
        return micros(self.timeout, "timeout") / 1e6

    def _topics(self) -> tuple[str, ...]:
        return (self.topic,) if isinstance(self.topic, str) else self.topic

    def _metadata_client(self) -> TopicClient:
        if self._planner is None:
            self._planner = _client().TopicClient(self._client_settings(), self._timeout_seconds())
        planner: TopicClient = self._planner
        return planner

    def _names(self) -> dict[str, tuple[str, int]]:
        planner = self._metadata_client()
        return {f"{t}/{n}": (t, n) for t in self._topics() for n in planner.partitions(t)}

    def _ends(self) -> Ends:
        """The first offset there is and the next one there will be, by partition."""
        names = self._names()
        ends = self._metadata_client().ends(names.values())
        return {name: ends[part] for name, part in names.items()}

    def _next(self, name: str, wanted: int, low: int, high: int) -> int:
        """The offset that is read next, when this one is wanted."""
        topic, _, number = name.rpartition("/")
        if wanted < low and self.on_lost == "fail":
            raise _client().lost(topic, int(number), wanted, low - wanted)
        if wanted < low:
            self._skipped(name, wanted, low - wanted)
        if wanted > high and not self._metadata_client().reaches(topic, int(number), wanted):
            raise SourceError(
                "the partition ends before the offset that is wanted next",
                given=f"{name}: wanted {wanted}, the next to be written is {high}",
                hint="was the topic made anew? then begin with a new checkpoint",
            )
        return max(wanted, low)

    def _skipped(self, name: str, wanted: int, count: int) -> None:
        """Notes offsets that are gone, once however often a batch is planned again."""
        lost = self._gone.setdefault(name, {})
        if lost.get(str(wanted)) != count:
            lost[str(wanted)] = count
            if len(lost) > _FEW:  # of those long ago only the number matters
                before = sorted(lost, key=int)[: len(lost) - _FEW]
                lost["-1"] = sum(lost.pop(offset) for offset in before)
            if self._home is not None:
                self._home.write(_LOST, records.encode(self._gone))

    def _found_schema(self) -> pa.Schema:
        if self._found is None:
            self._found = self._first_schema()
        return self._found

    def _first_schema(self) -> pa.Schema:
        for name, (low, high) in self._ends().items():
            topic, _, number = name.rpartition("/")
            wanted = _client().OffsetRange(topic, int(number), low, min(high, low + _SAMPLE))
            for block in _client().blocks(
                self._client_settings(), wanted, self._timeout_seconds(), skip=True
            ):
                for payload in block.payloads:
                    try:
                        return read_stream(payload).schema.remove_metadata()
                    except (pa.ArrowException, OSError):
                        continue
        raise UnreachableError(
            "the topic has no message yet that tells its columns",
            given=", ".join(self._topics()),
            hint="add schema: {ts: timestamp, v: double}",
        )


def _client() -> Any:
    return module("kafka_client", "kafka")


def _gone(partition: str, block: MessageBlock) -> list[Aside]:
    if block.gone is None:
        return []
    at, count = block.gone
    return [Aside(partition, at, f"{count} offsets are gone before they were read")]


def shares(left: Mapping[str, int], most: int) -> dict[str, int]:
    """Shares out `most` fairly: nobody gets more than is left, or more than one who goes short.

    >>> shares({"a": 10, "b": 100, "c": 100}, 90)
    {'a': 10, 'b': 40, 'c': 40}
    """
    given: dict[str, int] = {}
    for rank, name in enumerate(sorted(left, key=lambda name: (left[name], name))):
        # The smallest first: what it does not need is for the others.
        given[name] = min(left[name], -(-most // (len(left) - rank)))
        most -= given[name]
    return given
