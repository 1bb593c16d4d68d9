"""Count windows at the root of a tree: what notes say, what is asked, which windows are full."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.counting import wire
from catchment.counting.message import Up
from catchment.counting.root import RootCounter
from catchment.counting.saving import restore, save
from catchment.counting.status import status
from catchment.engine.complete import Complete
from catchment.engine.engine import Engine
from catchment.engine.rows import concat_rows
from catchment.tree.charter import Charter
from catchment.tree.counting import Key, Lift, Orders, counted, windows_of


class Tally:
    """A root for every key of the groups that are counted; equal notes, equal orders."""

    def __init__(self, charter: Charter, engine: Engine, saved: str = "") -> None:
        self.groups = counted(charter)
        self._lifts = {id: Lift(engine.states[id]) for id in self.groups}
        self.engine = engine
        self.lanes: dict[tuple[int, Key], RootCounter] = {}
        self.orders = Orders()
        self.ended: set[int] = set()
        self.nodes: list[int] = []
        self._late = 0
        self.away: set[int] = set()
        self.lacking: dict[tuple[Any, ...], tuple[int, ...]] = {}
        """Windows of the last step that may lack events of nodes that were given up, and whose."""
        if saved:
            self._restore(saved)

    def follow(self, now: list[int]) -> None:
        """Nodes that came and went: those that read events now."""
        for node in set(now) - set(self.nodes):
            for lane in self.lanes.values():
                lane.join(node)
        for node in set(self.nodes) - set(now):
            self.away.discard(node)
            for lane in self.lanes.values():
                lane.leave(node)
        self.nodes = now

    def _lane(self, group: int, key: Key) -> RootCounter:
        if (group, key) not in self.lanes:
            lift = self._lifts[group]
            lane = RootCounter(
                self.nodes, windows_of(lift.state), lift, "monitor", zones=False, returns=False
            )
            for node in self.away:
                lane.give_up(node)
            self.lanes[group, key] = lane
        return self.lanes[group, key]

    def take(self, notes: pa.Table) -> None:
        """Takes the notes of a message."""
        for note in notes.column("note"):
            node, ended, said = wire.load(note.as_py())
            if node not in self.nodes:
                continue
            self.ended = self.ended | {node} if ended else self.ended - {node}
            for group, key, body in said:
                self._lane(group, key).receive(Up.from_bytes(body), nbytes=len(body))

    def step(self, missing: Iterable[int]) -> None:
        """Finds edges; full windows go into the engine, what is asked into the orders."""
        away, self.lacking = set(missing), {}
        for lane in self.lanes.values():
            for node in away - self.away:
                lane.give_up(node)
            for node in self.away - away:
                lane.back(node)
        self.away = away
        words = []
        for (group, key), lane in self.lanes.items():
            down = lane.step()
            if down is not None:
                words.append((group, key, down.to_bytes()))
            self._emit(group, key, lane)
        here = set(self.nodes) - self.away
        over = here <= self.ended and all(lane.over for lane in self.lanes.values())
        self.orders.say(words, over and bool(here))

    def _emit(self, group: int, key: Key, lane: RootCounter) -> None:
        windows = lane.take()
        if not windows:
            return
        self.lacking |= {(group, w.number, *key[1:]): w.missing for w in windows if w.missing}
        lift, state = self._lifts[group], self.engine.states[group]
        rows = concat_rows([lift.unpack(w.partial["rows"]) for w in windows], lift.operators)
        types = dict(self.engine._shapes[group].key_types)
        names = zip(state.group.by, key[1:], strict=True)
        columns = [pa.array([value], types[name]) for name, value in names]
        code = int(state.keys.codes_of(np.array([key[0]], np.int64), columns)[0])
        kinds = np.array([w.kind for w in windows], np.int64)
        numbers = np.array([w.number for w in windows], np.int64)
        codes = np.full(len(windows), code, np.int64)
        state.ready.append(Complete(kinds, codes, rows.first, rows.last, rows.fields, numbers))

    def newly_late(self) -> int:
        """Events of all nodes that came too late, since the last call."""
        late = sum(t.late for lane in self.lanes.values() for t in lane.tracks.values())
        new, self._late = late - self._late, late
        return new

    def status(self) -> dict[str, Any]:
        """By lane: the scheme in use, corrections, and whose clocks are wrong."""
        return {
            f"{group} {' '.join(map(str, key[1:]))}".strip(): status(lane)
            for (group, key), lane in list(self.lanes.items())[:20]
        }

    def to_text(self) -> str:
        lanes = [(group, key, save(lane)) for (group, key), lane in self.lanes.items()]
        plain = [
            self.orders.to_plain(), sorted(self.ended), self.nodes, sorted(self.away), self._late,
            lanes,
        ]  # fmt: skip
        return base64.b64encode(wire.dump(plain)).decode()

    def _restore(self, saved: str) -> None:
        orders, ended, self.nodes, away, self._late, lanes = wire.load(base64.b64decode(saved))
        self.orders = Orders.from_plain(orders)
        self.ended, self.away = set(ended), set(away)
        for group, key, body in lanes:
            lift = self._lifts[group]
            self.lanes[group, key] = restore(body, windows_of(lift.state), lift)
