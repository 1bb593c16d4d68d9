"""A damaged spool: what can be read is read, once and in order; the rest is counted and kept."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.sources import spool as spool_module
from catchment.sources.mqtt import Mqtt
from catchment.sources.spool import Spool, SpoolPosition, path_of, runs
from catchment.sources.spool_format import HEAD, RECORD, packed, read_header, whole_records

SEGMENT = 400
COUNT = 60


def payload(n: int) -> bytes:
    return b"%d " % n + b"x" * (n % 7)


def filled(folder: Path, segment: int = SEGMENT, count: int = COUNT) -> SpoolPosition:
    """Some messages in a few segments, and the end."""
    spool = Spool(folder, segment)
    for n in range(count):
        spool.add(b"t", payload(n))
        if n % 5 == 4:
            spool.sync()
    spool.sync()
    spool.close()
    return spool.end


def read_on(
    spool: Spool, folder: Path, at: SpoolPosition, most: int = 7, parts: int = 2
) -> tuple[list[int], SpoolPosition]:
    """The numbers of the messages, batch after batch, which the places must confirm."""
    seen = []
    while (end := spool.upto(at, most, 1 << 20)) != at:
        assert end > at
        for low, high in spool.ranges(at, end, parts):
            for run in runs(folder, low, high, []):
                for number, stored in enumerate(run.messages, run.first):
                    assert stored.payload == payload(number)
                    seen.append(number)
        at = end
    return seen, at


def lost(spool: Spool) -> list[int]:
    return sorted(n for one in spool.damage() for n in range(one.first, one.first + one.messages))


def whole(folder: Path) -> set[int]:
    """The messages whose records are untouched, looked for in all files that are in their place."""
    found: set[int] = set()
    for path in folder.glob("*.spool"):
        data = path.read_bytes()
        held = read_header(data)
        if held is None or held.number == int(path.stem):
            salt = SALTS[folder]
            found |= {one.number for one in whole_records(data, HEAD.size, salt)}
    return found


SALTS: dict[Path, bytes] = {}


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3])):
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def blank(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    size = min(rng.randrange(1, 150), len(data) - at)
    data[at : at + size] = bytes(size)
    path.write_bytes(data)


def duplicate(path: Path, rng: random.Random) -> None:
    """Under another number, which may be that of a segment."""
    number = int(path.stem)
    others = [n for n in range(1, 13) if n != number]
    path_of(path.parent, rng.choice(others)).write_bytes(path.read_bytes())


@pytest.mark.parametrize("harm", [flip, cut, empty, blank, duplicate])
@pytest.mark.parametrize("seed", [*range(12), 204, 359])
def test_all_that_is_whole_is_read_once_and_the_rest_counted(
    tmp_path: Path, harm: Callable[[Path, random.Random], None], seed: int
) -> None:
    rng = random.Random(f"{harm.__name__} {seed}")
    filled(tmp_path, rng.choice([SEGMENT, 1 << 20]))
    SALTS[tmp_path] = spool_module._salt_of(tmp_path) or b""
    spool = Spool(tmp_path, SEGMENT)
    done, saved = [], spool.first()
    if rng.random() < 0.6:
        saved = spool.upto(saved, rng.randrange(1, COUNT), 1 << 20)
        done = list(range(saved.messages))
        if rng.random() < 0.5:
            spool.free(saved)
    spool.close()
    segments = sorted(tmp_path.glob("*.spool"))
    before = {path: path.read_bytes() for path in segments}
    harm(rng.choice(segments), rng)
    sound = {n for n in whole(tmp_path) if n >= saved.messages}

    spool = Spool(tmp_path, SEGMENT)
    spool.add(b"t", payload(COUNT))  # it takes in what comes
    spool.sync()
    spool.close()
    assert spool.end.messages == COUNT + 1
    spool = Spool(tmp_path, SEGMENT)
    most, parts = rng.choice([1, 7, 1000]), rng.choice([1, 3])
    seen, end = read_on(spool, tmp_path, saved, most, parts)
    assert seen == sorted(sound | {COUNT}) and end == spool.end
    missing = sorted({*range(saved.messages, COUNT)} - sound)
    assert lost(spool) == missing
    assert read_on(spool, tmp_path, saved, most, parts)[0] == seen  # a batch that is read again
    assert lost(spool) == missing
    spool.close()

    # What was damaged is put right: from the same place on, it is as if nothing had been.
    for path, data in before.items():
        path.write_bytes(data + path.read_bytes()[len(data) :])
    spool = Spool(tmp_path, SEGMENT)
    seen, _ = read_on(spool, tmp_path, saved, most, parts)
    assert [*done, *seen] == list(range(COUNT + 1)) and lost(spool) == []
    spool.close()


def test_bytes_all_over_a_small_spool(tmp_path: Path) -> None:
    filled(tmp_path, count=4)
    path, folder = path_of(tmp_path, 1), tmp_path
    SALTS[folder] = spool_module._salt_of(folder) or b""
    sound = path.read_bytes()
    for at in range(0, len(sound), 2):
        for harmed in (sound[:at], sound[:at] + bytes([sound[at] ^ 0x40]) + sound[at + 1 :]):
            path.write_bytes(harmed)
            for later in range(2, 4):
                path_of(folder, later).unlink(missing_ok=True)
            wanted = sorted(whole(folder))
            spool = Spool(folder, SEGMENT)
            seen, _ = read_on(spool, folder, spool.first())
            assert seen == wanted and lost(spool) == sorted({*range(4)} - {*wanted})
            spool.close()


def test_what_was_read_before_it_was_damaged_is_not_counted(tmp_path: Path) -> None:
    filled(tmp_path, 1 << 20)
    spool = Spool(tmp_path, 1 << 20)
    saved = spool.upto(spool.first(), 20, 1 << 20)
    spool.close()
    data = bytearray(path_of(tmp_path, 1).read_bytes())
    data[HEAD.size + 5] ^= 1
    path_of(tmp_path, 1).write_bytes(data)
    spool = Spool(tmp_path, 1 << 20)
    assert read_on(spool, tmp_path, saved)[0] == list(range(20, COUNT)) and lost(spool) == []
    spool.close()


def test_what_was_passed_over_stays_counted(tmp_path: Path) -> None:
    filled(tmp_path, 1 << 20)
    path = path_of(tmp_path, 1)
    sound = path.read_bytes()
    path.write_bytes(sound[: HEAD.size] + bytes(10) + sound[HEAD.size + 10 :])
    spool = Spool(tmp_path, 1 << 20)
    _, at = read_on(spool, tmp_path, spool.first())
    (one,) = spool.damage()
    assert (one.first, one.messages, one.at) == (0, 1, HEAD.size)
    (kept,) = (tmp_path / "damaged").iterdir()
    assert kept.read_bytes() == path.read_bytes()[one.at : one.at + one.size]
    spool.free(at)
    spool.close()
    assert not path.exists()
    spool = Spool(tmp_path, 1 << 20)
    assert read_on(spool, tmp_path, at)[0] == [] and lost(spool) == [0]
    spool.close()


@pytest.mark.parametrize("marked", [True, False])
def test_a_write_that_a_crash_tore_is_cut_off_silently(tmp_path: Path, marked: bool) -> None:
    """Also if pages of its middle are missing and its end is there."""
    end = filled(tmp_path, 1 << 20)
    path, salt = path_of(tmp_path, 1), spool_module._salt_of(tmp_path) or b""
    if not marked:
        (tmp_path / "mark").unlink()
    sound = path.read_bytes()
    more = b"".join(packed(salt, COUNT + n, n, b"t", payload(n)) for n in range(4))
    for at in range(0, len(more), 7):
        path.write_bytes(sound + bytes(at) + more[at:] if at else sound + more[:20])
        spool = Spool(tmp_path, 1 << 20)
        assert spool.end == end and path.read_bytes() == sound
        assert read_on(spool, tmp_path, spool.first())[0] == list(range(COUNT))
        assert lost(spool) == [] and not (tmp_path / "damaged").exists()
        spool.close()


def test_a_message_cannot_pass_for_records(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    forged = packed(b"8 bytes.", 1, 0, b"t", b"forged")
    for body in (forged, payload(1)):
        spool.add(b"t", body)
    spool.sync()
    spool.close()
    path = path_of(tmp_path, 1)
    data = bytearray(path.read_bytes())
    data[HEAD.size] ^= 1
    path.write_bytes(data)
    spool = Spool(tmp_path, 1 << 20)
    assert read_on(spool, tmp_path, spool.first())[0] == [1] and lost(spool) == [0]
    spool.close()


def test_damage_that_comes_while_a_job_runs(tmp_path: Path) -> None:
    filled(tmp_path)
    spool = Spool(tmp_path, SEGMENT)
    path = path_of(tmp_path, 2)
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[HEAD.size + 3] ^= 1
    path.write_bytes(damaged)
    seen, _ = read_on(spool, tmp_path, spool.first(), 1)
    (gone,) = lost(spool)
    assert seen == [n for n in range(COUNT) if n != gone]
    spool.close()


def test_a_spool_of_an_earlier_build_is_refused(tmp_path: Path) -> None:
    path_of(tmp_path, 1).write_bytes(b"catchsp1" + bytes(8))
    with pytest.raises(SourceError, match=r"an earlier build \(format 1\).*move .* away"):
        Spool(tmp_path)


def mqtt() -> Mqtt:
    return Mqtt(host="127.0.0.1", port=1, topic="t", schema={"n": "bigint"})


def opened(home: Path) -> Mqtt:
    made = mqtt()
    made.open_spool(Folder(str(home)))
    return made


def of_source(made: Mqtt) -> tuple[list[int], list[int], list[dict[str, object]]]:
    """Events, the places they have, and what was set aside."""
    seen, places, bad = list[int](), list[int](), list[dict[str, object]]()
    for split in made.splits(made.start(), made.bound({}), 1):
        for piece in mqtt().read(split, None, None):
            seen += piece.events["n"].to_pylist()
            assert piece.arrival is not None
            places += [piece.arrival + n for n in range(piece.events.num_rows)]
            bad += piece.bad.to_pylist() if piece.bad else []
    return seen, places, bad


def test_a_source_says_what_it_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(tmp_path)
    for n in range(20):
        made.spool().add(b"t", json.dumps({"n": n}).encode())
    made.spool().sync()
    assert made.never_read() == []
    made.close()
    path = path_of(tmp_path / "spool", 1)
    data = bytearray(path.read_bytes())
    second = HEAD.size + RECORD.size + len(b"t" + json.dumps({"n": 0}).encode())
    data[second + 2] ^= 1
    path.write_bytes(data)
    path_of(tmp_path / "spool", 9).write_bytes(b"something else")
    made = opened(tmp_path)
    wanted = [n for n in range(20) if n != 1]
    seen, places, bad = of_source(made)
    assert seen == wanted and bad == []
    assert places == wanted  # as if nothing had been
    told = {one.origin: (one.rows, one.nbytes, one.reason) for one in made.never_read()}
    rows, nbytes, reason = told[str(path)]
    assert (rows, nbytes) == (1, RECORD.size + 9)
    assert reason == (
        f"1 message of the spool cannot be read; the {nbytes} bytes at byte {second} are "
        f"kept in {path.parent / 'damaged'}"
    )
    assert told[str(path_of(path.parent, 9))][0] == 0
    assert path_of(path.parent, 9).read_bytes() == b"something else"

    # Where no copy can be kept, what was damaged is among the bad rows.
    for kept in (path.parent / "damaged").iterdir():
        kept.unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool_module, "write_whole", full)
    seen, _, bad = of_source(made)
    assert seen == wanted and [(b["origin"], b["place"]) for b in bad] == [(str(path), 1)]
    made.close()
