"""What keys take: counted, bounded by bytes, and flat where keys come and go."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine.bound import BoundPlan
from catchment.engine.keys import Encoder
from catchment.model.rules import EventRules
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle_run
from small_tables import SECOND, table

STEP = 10 * SECOND
QUERIES = [
    ct.Query("fixed", ct.count().alias("n"), ct.sum("v"), by="k", window=ct.tumbling("10s")),
    ct.Query("visits", ct.count().alias("n"), ct.max("v"), by="k", window=ct.session("3s")),
    ct.Query("hundreds", ct.sum("v"), ct.last("k"), window=ct.count_tumbling(100)),
    ct.Query("pairs", ct.sum("v"), by="j", window=ct.count_sliding(4, 2)),
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as small as they may get, so that few events show whether they grow."""
    monkeypatch.setattr("catchment.engine.keys._FEW", 64)
    monkeypatch.setattr("catchment.engine.key_space._CROWD", 64)


def step_of(step: int, keys: int, events: int) -> list[dict[str, Any]]:
    """Events of a step, in keys that no other step has but for one; some are late, some very."""
    dice = np.random.default_rng(step)
    at = step * STEP + np.sort(dice.integers(0, STEP // 2, events))
    at[::17] -= 6 * SECOND
    at[::23] -= 40 * SECOND
    names = [f"step {step} key {key}" for key in dice.integers(0, keys, events)]
    names[::5] = ["always"] * len(names[::5])
    return [
        {"ts": int(t), "k": name, "j": f"j{t % 3}", "v": int(v)}
        for t, name, v in zip(at, names, dice.integers(0, 9, events), strict=True)
    ]


def columns(rows: list[dict[str, Any]]) -> pa.Table:
    named = {c: pa.array([row[c] for row in rows]) for c in ("k", "j", "v")}
    return table([row["ts"] for row in rows], **named)


def flat(seen: list[int], slack: float = 1.15) -> None:
    quarter = len(seen) // 4
    early, late = max(seen[quarter : 2 * quarter]), max(seen[-quarter:])
    assert late <= early * slack + 2000, (early, late)


@pytest.mark.parametrize("late", ["drop", "update"])
def test_keys_that_come_and_go_leave_nothing_behind(small: None, late: Any) -> None:
    """Tumbling, session and count windows, with late events: flat, and right all the way."""
    settings: dict[str, Any] = {"late": late, "lateness": "5s"}
    settings |= {"keep": "15s"} if late == "update" else {}
    engine = ct.Engine(QUERIES, **settings)
    batches = [step_of(step, 30, 60) for step in range(48)]
    script: list[Any] = []
    for step, rows in enumerate(batches):
        script += [("push", rows), ("advance", (step + 1) * STEP)]
    expected = oracle_run(QUERIES, [*script, ("close",)], **settings)
    seen = []
    for step, (rows, wanted) in enumerate(zip(batches, expected, strict=False)):
        engine.push(columns(rows))
        out = engine.advance((step + 1) * STEP)
        for query in QUERIES:
            assert_same(wanted[query.name], out[query.name], f"{step} {query.name}")
        seen.append(engine.stats.state_bytes)
    flat(seen)


@pytest.mark.slow
def test_real_memory_stays_flat() -> None:
    """At the sizes that are used: 240,000 keys, 4,000 at a time."""
    engine = ct.Engine(QUERIES[:3])
    tracemalloc.start()
    seen, counted = [], []
    try:
        for step in range(60):
            at = step * STEP + np.arange(4000) * 1000
            names = pa.array([f"a key of step {step}: {key}" for key in range(4000)])
            ones = pa.array(np.ones(4000, np.int64))
            engine.push(table(at.tolist(), k=names, v=ones))
            out = engine.advance((step + 1) * STEP)
            assert out["fixed"].num_rows == 4000
            del out, names
            if step % 2 == 1:
                gc.collect()
                seen.append(tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes())
                counted.append(engine.stats.state_bytes)
    finally:
        tracemalloc.stop()
    # Tables grow until they are thrown away: highest points are compared.
    flat(seen)
    flat(counted)


def test_texts_are_part_of_the_state() -> None:
    query = ct.Query("q", ct.count(), by="k", window=ct.tumbling("1h"))
    engine = ct.Engine([query])
    names = [f"{'long' * 50} {key}" for key in range(2000)]
    engine.push(table(list(range(1999)), k=names[:-1]))
    engine.push(table([1999], k=names[-1:]))  # keys are looked for from the second push on
    held = sum(len(name) for name in names)
    # Once in the table of texts and once among the group's keys, besides what belongs to them.
    assert engine.stats.state_bytes > 2 * held + 2000 * 300


def test_too_many_keys_are_an_error_that_says_so() -> None:
    query = ct.Query("q", ct.count().alias("n"), by="k", window=ct.tumbling("1h"))
    engine = ct.Engine([query], key_bytes=1 << 20)
    parts = [range(at, at + 1000) for at in range(0, 20_000, 1000)]

    def push_all() -> None:
        for part in parts:
            engine.push(table(list(part), k=[f"k{n}" for n in part]))

    with pytest.raises(ct.LimitError) as caught:
        push_all()
    assert caught.value.what == "the keys that open windows need take more memory than is allowed"
    assert str(caught.value.given).endswith(" bytes of 1,048,576")
    assert caught.value.hint == "raise key_bytes, or use fewer keys, shorter windows, or more nodes"
    # Nothing is lost or wrong by it: what was taken in is there, and goes on with more memory.
    taken = engine.stats.accepted
    blob = engine.snapshot()
    with pytest.raises(ct.LimitError):
        ct.Engine.restore(blob).push(table([1], k=["one more"]))
    out = engine.close()["q"]
    assert out.num_rows == taken and set(out["n"].to_pylist()) == {1}


def test_a_limit_first_takes_what_only_saves_time() -> None:
    """Keys of windows that have ended, and the table of texts, go before anything is refused."""
    query = ct.Query("q", ct.count().alias("n"), by="k", window=ct.tumbling("10s"))
    engine = ct.Engine([query], key_bytes=3 << 20)
    for step in range(40):
        names = [f"{step} {key}" for key in range(2000)]
        engine.push(table([step * STEP + n for n in range(2000)], k=names))
        out = engine.advance((step + 1) * STEP)["q"]
        assert sorted(out["k"].to_pylist()) == sorted(names)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1 GB"])
def test_a_limit_that_is_none(wrong: Any) -> None:
    with pytest.raises(ct.QueryError, match="key_bytes must be a positive whole number"):
        ct.Engine([], key_bytes=wrong)


def test_a_node_that_only_slices_forgets_too(small: None) -> None:
    plan = ct.plan([ct.Query("q", ct.count(), by="k", window=ct.tumbling("10s"))])
    schema = table([0], k=["a"]).schema
    bound = BoundPlan(plan, EventRules(), schema)
    merger = bound.merger()
    slicer = bound.slicer(encoder=merger.encoder)
    seen = []
    for step in range(200):
        events = table([step * STEP] * 10, k=[f"{step} {n}" for n in range(10)])
        for sliced in slicer.slice(events, arrival=10 * step):
            merger.add(sliced)
        assert merger.release((step + 1) * STEP).groups[0].num_rows == 10
        seen.append(merger.held_bytes)
    flat(seen)


def batches_of_texts() -> Iterator[pa.Array[Any]]:
    dice = np.random.default_rng(1)
    for _ in range(30):
        yield pa.array([None if n == 0 else f"t{n}" for n in dice.integers(0, 500, 200)])


def test_forgetting_texts_changes_no_key() -> None:
    encoder, other = Encoder(), Encoder()
    for number, texts in enumerate(batches_of_texts()):
        if number % 3 == 0:
            encoder.forget()
        one, two = encoder.encode("k", texts), other.encode("k", texts)
        assert one.codes is not None and two.codes is not None
        assert one.take(one.codes)[0].to_pylist() == texts.to_pylist()
        assert two.take(two.codes)[0].to_pylist() == texts.to_pylist()
    assert encoder.nbytes < other.nbytes
