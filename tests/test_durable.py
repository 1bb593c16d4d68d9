"""What must outlive a crash: power that fails at any call, and damage to any byte of any file."""

from __future__ import annotations

import os
import random
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catchment.durable.files import LocalFiles, make_folders, write_whole
from catchment.durable.folder import Folder
from catchment.durable.log import FileLog
from catchment.durable.sealed import seal, unseal
from catchment.durable.volatile import VolatileFiles
from catchment.errors import StateError
from damage import damaged

SEGMENT = 300


# -- power failures -----------------------------------------------------------------------------


class Writer:
    """Does random things to a log and remembers what it was told is safe."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.files = VolatileFiles()
        self.safe: dict[int, bytes] = {}
        """Entries that must be there."""
        self.floor = -1
        """Entries up to here may be there or not: they were trimmed."""
        self.unsure: dict[int, bytes | None] = {}
        """What was being done when the power failed: it may have come about."""
        self.cleared = False
        self.open()

    def open(self) -> None:
        self.log = FileLog("home/log", "name", self.files, SEGMENT)

    def act(self) -> None:
        what = self.dice.choice(
            ["append"] * 8 + ["trim"] * 3 + ["reopen", "full", "clear", "rewind"]
        )
        getattr(self, what)()

    def append(self) -> None:
        number = 1 + (self.log.last or 0) + self.dice.choice([0, 0, 0, 5])
        body = self.dice.randbytes(self.dice.choice([0, 10, 100, 400]))
        self.unsure = {number: body}
        self.log.append(number, body)
        self.safe[number], self.unsure = body, {}

    def trim(self) -> None:
        if self.safe:
            upto = self.dice.choice([*self.safe])
            self.floor = max(self.floor, upto)
            self.safe = {n: body for n, body in self.safe.items() if n > upto}
            self.log.trim(upto)

    def rewind(self) -> None:
        if self.safe and self.dice.random() < 0.3:
            to = self.dice.choice([*self.safe])
            self.unsure = {n: None for n in self.safe if n > to}
            self.log.rewind(to)
            self.safe, self.unsure = {n: b for n, b in self.safe.items() if n <= to}, {}

    def clear(self) -> None:
        if self.dice.random() < 0.3:
            self.cleared = True
            self.log.clear()
            self.cleared, self.safe, self.floor = False, {}, -1

    def reopen(self) -> None:
        self.log.close()
        self.open()
        self.check()

    def full(self) -> None:
        self.files.full = True
        with suppress(StateError):
            self.dice.choice([self.append, self.trim])()
        self.files.full = False
        self.files.check()
        self.unsure = {}  # nothing of it may come back: the next one has its number

    def crash(self) -> None:
        self.files.crash(self.dice)
        self.open()
        self.check()

    def check(self) -> None:
        found = dict(self.log.entries(self.floor))
        if self.cleared and self.log.last is None:
            self.safe, self.floor = {}, -1
        if self.unsure.keys() <= self.safe.keys():  # a rewind that came about, wholly or not at all
            if self.unsure and not self.unsure.keys() & found.keys():
                self.safe = {n: b for n, b in self.safe.items() if n not in self.unsure}
        elif self.unsure.keys() & found.keys():
            self.safe |= {n: b for n, b in self.unsure.items() if b is not None}
        assert found == self.safe
        assert self.log.gap(self.floor) is None and self.log.damage == []
        self.unsure, self.cleared = {}, False
        if self.safe:
            assert self.log.last == max(self.safe)
        elif self.floor >= 0:
            assert (self.log.last or 0) >= self.floor  # numbers go on though all is trimmed


@settings(max_examples=settings.default.max_examples * 5)
@example(248922953)  # only the mark told what was trimmed, and the log was opened again
@example(1862418)  # of segments that a later one replaces, some were deleted
@given(st.integers(0, 2**64))
def test_a_log_keeps_what_was_safe_when_the_power_fails_at_any_call(seed: int) -> None:
    writer = Writer(seed)
    for _ in range(writer.dice.randint(1, 6)):
        writer.files.cut_after(writer.dice.randint(0, 60))
        with suppress(StateError, OSError):
            while True:
                writer.act()
        assert writer.files.dead
        writer.crash()


def test_the_disk_that_forgets_does_forget() -> None:
    """Without a sync of the folder a file can vanish, without one of the file its content can."""
    seen: set[str | None] = set()
    for seed in range(200):
        files = VolatileFiles()
        file = files.create("a")
        file.write(0, b"whole")
        if seed % 2:
            file.sync()
        files.crash(random.Random(seed))
        seen.add(files.read("a").decode() if files.names("") else None)
    assert {None, "", "whole"} <= seen and any(found and found != "whole" for found in seen)


@settings(max_examples=settings.default.max_examples * 5)
@given(st.integers(0, 2**64))
def test_a_small_file_is_there_whole_when_the_power_fails_at_any_call(seed: int) -> None:
    dice = random.Random(seed)
    files = VolatileFiles()
    held: dict[str, bytes] = {}
    for _ in range(dice.randint(1, 6)):
        files.cut_after(dice.randint(0, 30))
        while True:
            folder, name = dice.choice([("a/b", "x"), ("a/b", "y"), ("a/c", "x")])
            data = dice.randbytes(dice.randint(0, 50))
            try:
                write_whole(files, folder, name, data)
            except OSError:
                files.crash(dice)
                break
            held[f"{folder}/{name}"] = data
        path = f"{folder}/{name}"
        found = files.read(path) if name in files.names(folder) else None
        assert found in (held.get(path), data)
        if found is not None:
            held[path] = found
        for other, wanted in held.items():
            assert files.read(other) == wanted


def test_what_is_synced_and_no_more() -> None:
    files = VolatileFiles()
    log = FileLog("log", "name", files)
    log.append(1, b"x")
    before = files.syncs
    for number in range(2, 12):
        log.append(number, b"x")
    assert files.syncs - before == 10  # one each
    before = files.syncs
    log.trim(9)
    assert files.syncs == before
    write_whole(files, "folder", "x", b"")
    before = files.syncs
    write_whole(files, "folder", "x", b"")
    assert files.syncs - before == 2  # the file and its name


def test_trimmed_segments_are_deleted_also_on_a_full_disk() -> None:
    files = VolatileFiles()
    log = FileLog("log", "name", files, SEGMENT)
    for number in range(1, 50):
        log.append(number, bytes(100))
    files.full = True
    log.trim(40)
    files.full = False
    assert 1 < len(files.names("log")) < 10
    log.close()
    again = FileLog("log", "name", files, SEGMENT)
    assert [n for n, _ in again.entries()] == [*range(41, 50)] and again.gap(40) is None


def test_a_log_whose_entries_are_all_trimmed_stays_small() -> None:
    files = VolatileFiles()
    log = FileLog("log", "name", files, SEGMENT)
    for number in range(1, 200):
        log.append(number, bytes(90))
        log.trim(number)
    assert sum(len(files.read(f"log/{name}")) for name in files.names("log")) < 3 * SEGMENT
    assert log.nbytes == 0
    assert FileLog("log", "name", files, SEGMENT).last == 199


# -- damage -------------------------------------------------------------------------------------


def filled(files: VolatileFiles, dice: random.Random) -> dict[int, bytes]:
    """A log of some segments; what is in it."""
    log = FileLog("log", "name", files, SEGMENT)
    held: dict[int, bytes] = {}
    for number in range(1, dice.randint(2, 15)):
        if dice.random() < 0.2:
            log.close()
            log = FileLog("log", "name", files, SEGMENT)
        held[number] = dice.randbytes(dice.choice([0, 20, 150]))
        log.append(number, held[number])
    log.close()
    return held


def damage(files: VolatileFiles, dice: random.Random, way: str) -> None:
    """Truncates, empties, flips, doubles or copies any file of a log, at any byte."""
    names = files.names("log")
    path = f"log/{dice.choice(names)}"
    data = files.read(path)
    data = damaged(data, dice, way)
    if way == "copy":
        numbers = [int(name[:12]) for name in names if name != "mark"]
        path = f"log/{dice.choice(numbers) + dice.choice([0, 1, 7]):012d}.log"
    files.edit(path, lambda _: data)


WAYS = ["truncate", "empty", "flip", "double", "zero", "copy"]


@settings(max_examples=settings.default.max_examples * 10)
@given(st.integers(0, 2**64), st.sampled_from(WAYS))
def test_damage_to_a_log_is_without_effect_or_noticed(seed: int, way: str) -> None:
    dice = random.Random(seed)
    files = VolatileFiles()
    held = filled(files, dice)
    damage(files, dice, way)
    before = {name: files.read(f"log/{name}") for name in files.names("log")}
    log = FileLog("log", "name", files, SEGMENT)
    found = dict(log.entries())
    assert found.items() <= held.items()  # never anything else than what was written
    gap = log.gap(-1)
    if found != held:
        assert gap is not None and gap.upto not in found and log.damage
        assert "of log); restore" in str(gap.error())
        with pytest.raises(StateError, match="cannot be read"):
            log.read(gap.upto)
    else:
        assert gap is None
    assert {name: files.read(f"log/{name}") for name in before} == before  # nothing is repaired
    # It goes on: what is lost stays known, or is written anew.
    if gap is not None and dice.random() < 0.5:
        log.rewind(gap.after)
        held = {n: body for n, body in held.items() if n <= gap.after}
        gap = None
    number = 1 + (log.last or 0)
    log.append(number, b"new")
    log.close()
    again = FileLog("log", "name", files, SEGMENT)
    assert dict(again.entries()).items() <= (held | {number: b"new"}).items()
    assert again.read(number) == b"new"
    assert (again.gap(-1) is None) == (gap is None)


def test_an_empty_segment_kills_nobody(tmp_path: Path) -> None:
    """As a crash leaves one, between making a file and writing to it."""
    log = FileLog(str(tmp_path), "name")
    log.append(1, b"one")
    log.close()
    (tmp_path / "000000000002.log").touch()
    again = FileLog(str(tmp_path), "name")
    assert again.damage == [] and again.gap(-1) is None
    again.append(2, b"two")
    again.trim(2)
    again.close()
    assert (tmp_path / "000000000002.log").read_bytes() == b""
    assert FileLog(str(tmp_path), "name").last == 2


def test_what_cannot_be_read_is_set_aside_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = FileLog(str(tmp_path), "name")
    for number in (1, 2, 3):
        log.append(number, b"payload %d" % number)
    log.close()
    path = tmp_path / "000000000001.log"
    data = path.read_bytes()
    at = data.index(b"payload 2")
    path.write_bytes(data.replace(b"payload 2", b"paYload 2"))
    again = FileLog(str(tmp_path), "name")
    assert [n for n, _ in again.entries()] == [1, 3]
    (aside,) = (tmp_path / "damaged").iterdir()
    assert b"paYload 2" in aside.read_bytes() and f"-{at - 36}" in aside.name
    assert "no entry can be read there" in caplog.text and str(path) in caplog.text
    assert str(again.gap(0).error()) == (  # type: ignore[union-attr]
        "a log is damaged: what was written there cannot be read "
        f"(given: entry 2 of {tmp_path}); restore the whole folder from a backup; without one, "
        "remove the node from its tree, empty its folder and add it again"
    )


@pytest.mark.parametrize("lost", [1, 2])
def test_the_mark_tells_that_the_end_is_missing(tmp_path: Path, lost: int) -> None:
    """Cut off exactly between two entries: nothing in the segment tells."""
    log = FileLog(str(tmp_path), "name")
    for number in (1, 2, 3):
        log.append(number, b"1234")
    log.close()
    path = tmp_path / "000000000001.log"
    os.truncate(path, path.stat().st_size - lost * 40)
    again = FileLog(str(tmp_path), "name")
    gap = again.gap(0)
    assert gap is not None and (gap.after, gap.upto) == (3 - lost, 3)
    (tmp_path / "mark").unlink()
    assert FileLog(str(tmp_path), "name").gap(0) is None


def test_a_log_touches_only_files_that_carry_its_header(tmp_path: Path) -> None:
    other = FileLog(str(tmp_path), "inbox-victim")
    for number in range(1, 6):
        other.append(number, b"precious")
    other.close()
    (tmp_path / "000000000007.log").write_text("the log of something else\n" * 50)
    (tmp_path / "app.log").write_text("not even named like ours")
    (tmp_path / "000000000008.log").symlink_to(tmp_path / "app.log")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    log = FileLog(str(tmp_path), "inbox-x", segment=SEGMENT)
    assert log.last is None and [*log.entries()] == [] and len(log.damage) == 3
    for number in range(1, 30):
        log.append(number, bytes(100))
    log.trim(29)
    log.clear()
    log.close()
    assert {path: path.read_bytes() for path in before} == before
    assert [body for _, body in FileLog(str(tmp_path), "inbox-victim").entries()] == [
        b"precious"
    ] * 5


def test_what_is_in_an_entry_cannot_pass_for_an_entry(tmp_path: Path) -> None:
    """A copy of an entry inside another, whose own head is then damaged."""
    log = FileLog(str(tmp_path / "a"), "name")
    log.append(1, b"forged")
    log.close()
    forged = (tmp_path / "a" / "000000000001.log").read_bytes()
    log = FileLog(str(tmp_path / "b"), "name")
    log.append(1, forged)
    log.append(2, b"true")
    log.close()
    path = tmp_path / "b" / "000000000001.log"
    data = path.read_bytes()
    at = data.index(b"\xc5\x1cEN")
    path.write_bytes(data[: at + 1] + b"?" + data[at + 2 :])
    assert [*FileLog(str(tmp_path / "b"), "name").entries()] == [(2, b"true")]


# -- small parts --------------------------------------------------------------------------------


@given(st.binary(max_size=100), st.integers(0, 200), st.integers(0, 7))
def test_a_sealed_note_is_whole_or_not_read(data: bytes, at: int, bit: int) -> None:
    blob = seal("name", data)
    assert unseal("name", blob) == data and unseal("other", blob) is None
    assert all(unseal("name", blob[:n]) is None for n in range(len(blob)))
    at %= len(blob)
    assert unseal("name", blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]) is None


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_private_and_so_are_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        home = tmp_path / "deep" / "home"
        Folder(str(home)).sub("notes").write("x", b"secret")
        FileLog(str(home / "log"), "name").append(1, b"secret")
        make_folders(LocalFiles(private=False), str(tmp_path / "open"))
    finally:
        os.umask(before)
    for path in [tmp_path / "deep", home, *home.rglob("*")]:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(tmp_path / "open") == 0o755
