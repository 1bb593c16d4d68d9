"""A log behind a snapshot: power that fails at any call, entries that are missing or unreadable."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from catchment.durable import journaled, records
from catchment.durable.journaled import Journaled
from catchment.durable.records import RecordLog
from catchment.errors import StateError
from catchment.simulate.memory import MemoryDisk, VolatileDisk


class Added(Struct, frozen=True, tag="added"):
    n: int


class Doubled(Struct, frozen=True, tag="doubled"):
    pass


Entry = Added | Doubled


class Total(Struct, frozen=True):
    total: int


Sum = Journaled[Entry, Total]


def opened(disk: MemoryDisk | VolatileDisk, upto: int | None = None) -> tuple[Sum, int]:
    """A sum that is kept on a disk, and what it is."""
    kept: Sum = Journaled(disk, "sum", "total", Entry, Total, upto)
    total = 0 if kept.state is None else kept.state.total
    for entry in kept.replay():
        total = after(total, entry)
    return kept, total


def after(total: int, entry: Entry) -> int:
    return total + entry.n if isinstance(entry, Added) else 2 * total


@settings(max_examples=settings.default.max_examples * 2)
@given(st.integers(0, 2**64))
def test_what_was_appended_is_there_when_the_power_fails_at_any_call(seed: int) -> None:
    dice = random.Random(seed)
    disk = VolatileDisk()
    safe, number, at_hand = 0, 0, None
    for _ in range(8):
        try:
            disk.fail_soon(dice)
            kept, total = opened(disk)
            assert total in (safe, at_hand) and kept.number in (number, number + 1)
            safe, number, at_hand = total, kept.number, None
            for _ in range(20):
                entry = Added(dice.randrange(10)) if dice.random() < 0.8 else Doubled()
                at_hand = after(safe, entry)
                kept.append(entry)
                safe, number, at_hand = at_hand, kept.number, None
                if dice.random() < 0.2:
                    kept.compact(Total(safe))
        except StateError:
            assert disk.dead
        disk = disk.crashed(dice)
    assert opened(disk)[1] in (safe, at_hand)


def test_entries_for_what_was_never_finished_are_replaced() -> None:
    disk = MemoryDisk()
    kept, _ = opened(disk, upto=0)
    kept.append(Added(1))
    kept.append(Added(10))
    again, total = opened(disk, upto=1)
    assert (again.number, total) == (1, 1)
    again.append(Added(100))
    assert [entry for _, entry in RecordLog[Entry](disk, "sum", Entry).entries()] == [
        Added(1),
        Added(100),
    ]
    assert opened(disk, upto=2)[1] == 101


def test_a_snapshot_takes_the_place_of_a_long_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are short here: each counts for as much as a place in memory and a start cost."""
    monkeypatch.setattr(journaled, "SHORTEST", 10 * journaled.ENTRY)
    disk = MemoryDisk()
    kept, total = opened(disk)
    compacted = 0
    for n in range(100):
        kept.append(Added(n))
        total += n
        if kept.due:
            kept.compact(Total(total))
            compacted += 1
            assert kept.capacity("sum").used == 0 and disk.log("sum").nbytes == 0
        if n % 7 == 0:
            kept, total = opened(disk)  # a start counts the entries that it finds
    assert compacted == 10
    assert opened(disk)[1] == total == sum(range(100))


def test_a_snapshot_of_an_earlier_entry_leaves_the_later_ones() -> None:
    disk = MemoryDisk()
    kept, _ = opened(disk)
    kept.append(Added(1))
    kept.append(Added(10))
    kept.compact(Total(1), upto=1)
    assert opened(disk)[1] == 11


@pytest.mark.parametrize("gone", [1, 2])
def test_an_entry_that_is_missing_is_said(gone: int) -> None:
    disk = MemoryDisk()
    kept, _ = opened(disk)
    for n in range(3):
        kept.append(Added(n))
    log = disk.log("sum")
    held = dict(log.entries())
    log.clear()
    for number, body in held.items():
        if number != gone:
            log.append(number, body)
    with pytest.raises(StateError, match=rf"sum: entry {gone} of 3 is not there"):
        opened(disk)


def test_an_entry_of_another_type_is_said() -> None:
    disk = MemoryDisk()
    RecordLog[str](disk, "sum", str).append(1, "nonsense")
    with pytest.raises(StateError, match=r"damaged \(given: sum, entry 1: Expected `object`"):
        opened(disk)
    records.put(disk, "total", {"n": 1})
    with pytest.raises(StateError, match=r"damaged \(given: total: Expected `array`"):
        opened(disk)


def test_a_note_is_a_record_of_its_type() -> None:
    disk = MemoryDisk()
    assert records.get(disk, "note", Total) is None
    records.put(disk, "note", Total(3))
    assert records.get(disk, "note", Total) == Total(3)
    records.put(disk, "note", {"total": "many"})
    with pytest.raises(StateError, match=r"note: Expected `int`, got `str`"):
        records.get(disk, "note", Total)
