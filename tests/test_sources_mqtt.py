"""MQTT as a source: what was acknowledged is read, whatever is killed, torn or full."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.sources.mqtt import Mqtt
from catchment.sources.spool import Spool, SpoolPosition, path_of, runs
from catchment.sources.spool_format import HEAD, RECORD
from patience import PATIENCE, wait_for
from servers import Mosquitto

SCHEMA = {"n": "bigint"}


@contextmanager
def publisher(mosquitto: Mosquitto) -> Iterator[Callable[[str, bytes], None]]:
    client = Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(1000)
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()
    sent = []
    try:
        yield lambda topic, payload: sent.append(client.publish(topic, payload, qos=1))
        for one in sent:
            one.wait_for_publish(PATIENCE)
    finally:
        client.disconnect()
        client.loop_stop()


def publish(mosquitto: Mosquitto, topic: str, *payloads: bytes) -> None:
    with publisher(mosquitto) as send:
        for payload in payloads:
            send(topic, payload)


def numbers(first: int, count: int) -> list[bytes]:
    return [json.dumps({"n": n}).encode() for n in range(first, first + count)]


def source(mosquitto: Mosquitto, topic: str, **more: Any) -> Mqtt:
    options = {"host": mosquitto.host, "port": mosquitto.port, "topic": topic, "schema": SCHEMA}
    return Mqtt(**(options | more))


@contextmanager
def opened(made: Mqtt, home: Path) -> Iterator[Mqtt]:
    made.open(Folder(str(home)))
    try:
        wait_for(lambda: made._receiver is None or made._receiver.receiving)
        yield made
    finally:
        made.close()


def spooled(made: Mqtt) -> int:
    return made.bound({})["count"]


def read(made: Mqtt, start: Any, end: Any, parallel: int = 1) -> tuple[list[Any], list[Any]]:
    """Numbers and bad rows, as copies that came by pickle read them."""
    copy = pickle.loads(pickle.dumps(made))
    seen, bad, place = [], [], start["count"]
    for split in made.splits(start, end, parallel):
        assert split.arrival >= place
        for piece in copy.read(split, None, None):
            assert piece.arrival is not None and piece.arrival >= place
            place = piece.arrival + piece.events.num_rows
            seen += piece.events["n"].to_pylist()
            bad += piece.bad.to_pylist() if piece.bad else []
    assert place <= end["count"]
    return seen, bad


def read_on(made: Mqtt, position: Any) -> tuple[list[Any], Any]:
    """Batch after batch, to the end of what is there."""
    seen = []
    while (end := made.latest(position)) != position:
        seen += read(made, position, end, random.choice([1, 3]))[0]
        position = end
    return seen, position


@pytest.mark.parametrize("version", [3, 5])
def test_messages_are_read_once_whatever_the_batches(
    mosquitto: Mosquitto, tmp_path: Path, version: int
) -> None:
    topic = f"once/{uuid4()}"
    made = source(mosquitto, f"{topic}/+", version=version, max_per_batch=150)
    made.check()
    with opened(made, tmp_path):
        position = made.start()
        publish(mosquitto, f"{topic}/a", *numbers(0, 400))
        wait_for(lambda: spooled(made) >= 400)
        seen, position = read_on(made, position)
        assert seen == list(range(400)) and made.partitions(position) == ["mqtt"]
        assert made.latest(made.start(), {**position, "count": 0}) == made.latest(made.start())
    with opened(made, tmp_path):  # a restart goes on at the same place
        publish(mosquitto, f"{topic}/a", *numbers(400, 5))
        wait_for(lambda: {*range(400, 405)} <= {*read_on(made, position)[0]})
        assert {*read_on(made, made.start())[0]} == {*range(405)}


def test_bad_payloads_and_topics(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = f"bad/{uuid4()}"
    made = source(mosquitto, f"{topic}/#", topic_column="from")
    with opened(made, tmp_path):
        publish(mosquitto, f"{topic}/x", b'{"n": 1}', b"junk\xff", b"")
        publish(mosquitto, f"{topic}/é", b'{"n": 2}')
        wait_for(lambda: spooled(made) >= 4)
        (split,) = made.splits(made.start(), made.bound({}), 1)
        (piece,) = made.read(split, None, None)
        assert piece.events.schema == made.event_schema()
        assert piece.events.to_pydict() == {"n": [1, 2], "from": [f"{topic}/x", f"{topic}/é"]}
        assert piece.bad is not None
        shown = [(b["origin"], b["place"], b["body"]) for b in piece.bad.to_pylist()]
        assert shown == [(f"{topic}/x", 1, b"junk\xff"), (f"{topic}/x", 2, b"")]
        (piece,) = made.read(split, ["from"], None)
        assert piece.events.num_rows >= 2 and piece.events.column_names == ["from"]


RECEIVER = """
import json, sys, time
from catchment.durable.folder import Folder
from catchment.sources.mqtt import Mqtt
made = Mqtt(**json.loads(sys.argv[1]))
input()
made.open(Folder(sys.argv[2]))
while True:
    print(made.bound({})["count"], flush=True)
    time.sleep(0.01)
"""


def test_a_receiver_killed_again_and_again_loses_nothing(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    # The broker keeps at most 1000 messages for a receiver that is away.
    topic, count = f"killed/{uuid4()}", 500
    made = source(mosquitto, topic, session="1h", max_spool=1 << 20)
    with opened(made, tmp_path):
        position = made.start()  # the session is there from now on
    options = json.dumps(made.model_dump(by_alias=True, exclude={"type"}))
    command = [sys.executable, "-c", RECEIVER, options, str(tmp_path)]
    pipe = subprocess.PIPE
    # Both at once, because to import takes them seconds; each begins when it is told to.
    children = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    with publisher(mosquitto) as send:
        for part, child in enumerate(children):
            assert child.stdin is not None and child.stdout is not None
            print(file=child.stdin, flush=True)
            before = int(child.stdout.readline())
            for payload in numbers(part * count // 2, count // 2):
                send(topic, payload)
            enough = before + random.randrange(1, count // 4)
            while int(child.stdout.readline()) < enough:
                pass
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()
    with opened(made, tmp_path):
        seen: set[int] = set()

        def all_there() -> bool:
            nonlocal position
            more, position = read_on(made, position)
            seen.update(more)
            return len(seen) == count

        wait_for(all_there)
        assert seen == set(range(count))


@pytest.mark.parametrize("down", [Mosquitto.stop, Mosquitto.kill])
def test_a_broker_that_comes_back_goes_on(
    mosquitto: Mosquitto, tmp_path: Path, down: Callable[[Mosquitto], None]
) -> None:
    topic = f"back/{uuid4()}"
    made = source(mosquitto, topic)
    with opened(made, tmp_path):
        publish(mosquitto, topic, *numbers(0, 10))
        wait_for(lambda: spooled(made) >= 10)
        down(mosquitto)
        receiver = made._receiver
        assert receiver is not None
        wait_for(lambda: not receiver.receiving)
        mosquitto.start()
        wait_for(lambda: receiver.receiving)
        publish(mosquitto, topic, *numbers(10, 10))
        wait_for(lambda: {*read_on(made, made.start())[0]} == {*range(20)})


def test_commits_free_a_full_spool(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic, count = f"full/{uuid4()}", 300
    made = source(mosquitto, topic, max_spool=100_000)
    padded = [json.dumps({"n": n, "pad": "x" * 1000}).encode() for n in range(count)]
    with opened(made, tmp_path):
        position = made.start()
        publish(mosquitto, topic, *padded)
        wait_for(lambda: spooled(made) > 50)
        # How much more it takes in is up to the protocol's window of messages on their way.
        seen: list[int] = []

        def all_there() -> bool:
            nonlocal position
            more, position = read_on(made, position)
            made.commit(position)
            seen.extend(more)
            return len(seen) >= count

        wait_for(all_there)
        assert seen == list(range(count))
        assert sum(p.stat().st_size for p in (tmp_path / "spool").iterdir()) < 200_000


def filled(folder: Path, count: int, segment: int = 400) -> Spool:
    spool = Spool(folder, segment)
    for n in range(count):
        spool.add(b"t", str(n).encode())
        if n % 5 == 4:
            spool.sync()
    spool.sync()
    return spool


def payloads(
    spool: Spool, folder: Path, start: SpoolPosition, end: SpoolPosition, parts: int
) -> list[int]:
    ranges = spool.ranges(start, end, parts)
    found = (run for low, high in ranges for run in runs(folder, low, high, []))
    return [int(one.payload) for run in found for one in run.messages]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("most", [1, 3, 7, 50, 1000])
def test_a_spool_is_cut_anywhere(tmp_path: Path, again: bool, most: int) -> None:
    spool = filled(tmp_path, 203)
    if again:
        spool.close()
        spool = Spool(tmp_path, 400)
    at, seen = spool.first(), list[int]()
    while (end := spool.upto(at, most, 1 << 20)) != at:
        assert end.messages - at.messages <= most
        seen += payloads(spool, tmp_path, at, end, most % 4)
        at = end
    assert seen == list(range(203)) and at == spool.end
    assert len(list(tmp_path.glob("*.spool"))) > 3
    spool.free(at)
    assert [int(p.stem) for p in tmp_path.glob("*.spool")] == [at.segment]
    assert spool.upto(at, 5, 5) == at
    with pytest.raises(SourceError, match="does not have the place"):
        spool.upto(SpoolPosition(1, HEAD.size, 0), 5, 5)
    spool.close()


def test_a_batch_has_a_bound_in_bytes(tmp_path: Path) -> None:
    spool = filled(tmp_path, 100, 1 << 20)
    end = spool.upto(spool.first(), 1000, 200)
    assert 5 <= end.messages < 25
    assert spool.upto(spool.first(), 1000, 1).messages == 5  # something, however small the bound
    spool.close()


@pytest.mark.parametrize("cut", range(1, 90, 12))
@pytest.mark.parametrize("noise", [b"", b"\0" * 40, b"\xff" * 9])
def test_a_torn_tail_is_cut_off(tmp_path: Path, cut: int, noise: bytes) -> None:
    spool = filled(tmp_path, 20, 1 << 20)
    first = spool.first()
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    segment.write_bytes(segment.read_bytes()[:-cut] + noise)
    (tmp_path / "mark").unlink()  # as if these messages had not been safe yet
    spool = Spool(tmp_path, 1 << 20)
    whole = spool.end.messages
    size = RECORD.size + len("t19")
    assert whole == 20 - -(-cut // size)  # of some records, bytes are gone
    spool.add(b"t", b"77")
    spool.sync()
    assert payloads(spool, tmp_path, first, spool.end, 1) == [*range(whole), 77]
    spool.close()


def test_a_segment_without_its_head_is_dropped(tmp_path: Path) -> None:
    spool = filled(tmp_path, 20, 1 << 20)
    end = spool.end
    spool.close()
    path_of(tmp_path, 2).write_bytes(b"catch")
    spool = Spool(tmp_path, 1 << 20)
    assert spool.end == end and not path_of(tmp_path, 2).exists()
    spool.close()


@pytest.mark.parametrize("content", [b"", b"foreign to the spool"])
def test_an_emptied_or_foreign_segment_is_said(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path, 20, 1 << 20).close()
    path_of(tmp_path, 1).write_bytes(content)
    spool = Spool(tmp_path)
    assert payloads(spool, tmp_path, spool.first(), spool.end, 1) == []
    assert [one.messages for one in spool.damage()] == [20]
    assert spool.strange() == ([path_of(tmp_path, 1)] if content else [])
    spool.close()
    assert path_of(tmp_path, 1).read_bytes() == content


def test_damage_and_a_second_writer_are_said(tmp_path: Path) -> None:
    spool = filled(tmp_path, 20, 1 << 20)
    with pytest.raises(SourceError, match="another process writes"):
        Spool(tmp_path)
    segment = path_of(tmp_path, 1)
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(data)
    assert payloads(spool, tmp_path, spool.first(), spool.end, 1) == list(range(1, 20))
    assert [one.messages for one in spool.damage()] == [1]
    segment.unlink()
    with pytest.raises(SourceError, match="the same path wherever tasks run"):
        list(runs(tmp_path, spool.first(), spool.end, []))
    spool.close()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    made = Mqtt(host="127.0.0.1", port=1, topic="t", schema=SCHEMA)
    with pytest.raises(SourceError, match=r"cannot be reached \(given: 127.0.0.1:1\)"):
        made.check()
    with pytest.raises(SourceError, match="is not open"):
        made.start()
    with pytest.raises(SourceError, match="kept on local disk"):
        made.open(_Remote())
    with pytest.raises(SourceError, match="mqtt needs a schema"):
        Mqtt(host="h", topic="t", format="arrow")
    with pytest.raises(SourceError, match="has the name of another"):
        Mqtt(host="h", topic="t", schema=SCHEMA, topic_column="n")


class _Remote(Folder):
    def __init__(self) -> None:
        self.uri = "s3://bucket/home"


def test_arrow_payloads(mosquitto: Mosquitto, tmp_path: Path) -> None:
    topic = f"arrow/{uuid4()}"
    sink = pa.BufferOutputStream()
    table = pa.table({"n": range(50)})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    made = source(mosquitto, topic, format="arrow", topic_column="from")
    with opened(made, tmp_path):
        publish(mosquitto, topic, sink.getvalue().to_pybytes(), b"junk")
        wait_for(lambda: spooled(made) >= 2)
        (split,) = made.splits(made.start(), made.bound({}), 1)
        (piece,) = made.read(split, None, None)
        assert piece.events["n"].to_pylist() == list(range(50))
        assert piece.events["from"].unique().to_pylist() == [topic]
        assert piece.bad is not None and piece.bad.num_rows == 1
