"""A tree of nodes, looked at: its root is asked, and every node in between that listens.

A node says how it stands and how its children do, so asking the nodes that have children tells of
all. Where nobody runs the root any more, and its folder is on this host, a copy of the folder tells
how the tree ended.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from msgspec import UnsetType
from msgspec.structs import replace

from catchment.durable.folder import Folder
from catchment.durable.lock import holder
from catchment.engine.times import now
from catchment.errors import CatchmentError
from catchment.job import JobModel
from catchment.model.names import file_name
from catchment.model.query import Query
from catchment.model.recent_rate import RecentRate
from catchment.nodes.disk import FileDisk
from catchment.nodes.questions import (
    AddQueries,
    AskPlan,
    AskStatus,
    CheckQueries,
    PlanAnswer,
    RemoveQueries,
    TreeChange,
    admin,
    ask,
    root_of,
)
from catchment.nodes.status import ChildStatus, NodeStatus, PlaceStatus, status
from catchment.planner.planned import Planned
from catchment.sinks.base import Sink
from catchment.sources.aside_files import newest_rows
from catchment.tree.member import Member
from catchment.ui.results import ResultReader
from catchment.ui.snapshot import (
    JobView,
    NodeRole,
    NodeState,
    Notice,
    ShownNode,
    ShownTime,
    Snapshot,
)

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds that a node has to answer."""
ASKED = 64
"""Nodes in between that are asked for each look; where there are more, they take turns."""
_AT_ONCE = 8
_COPIED = 64 << 20
"""Bytes of the folder of a root that has ended which are copied to look at them, at most."""


class TreeJob:
    """A tree that is looked at."""

    def __init__(self, job: JobModel) -> None:
        self.job = job
        self.address = root_of(job)
        self._security = admin(job)
        self._results = ResultReader(job.sinks)
        self._speed = RecentRate()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "catchment-ui")
        self._lock = threading.Lock()
        self._planned: Planned | None = None
        self._charter: int | None = None
        """The version of the charter by which the plan was asked for."""
        self._last: NodeStatus | None = None
        """What the root has said last."""
        self._turn = 0
        self._between: dict[str, NodeStatus | None] = {}
        """What nodes in between have said; None: they do not answer."""

    @property
    def name(self) -> str:
        return self.job.name or "tree"

    @property
    def sinks(self) -> Sequence[Sink]:
        return self.job.sinks

    # -- looking ---------------------------------------------------------------------------------

    def look(self) -> Snapshot:
        try:
            root, state, error = self._status_of(self.address), "running", None
        except CatchmentError as failure:
            found = self._last_words()
            if found is None:
                return self._unreachable(str(failure))
            root, state, error = found, "stopped", None
        if root.frontier == "ended":
            state = "ended"
        self._last = root
        self._ask_between(root.places or [])
        nodes = node_views(root, self._between, state == "running")
        counts = dict(root.counts or {})
        planned = self._plan_by(root.charter)
        job = JobView(
            self.name,
            "tree",
            state,
            frontier=_set(root.frontier),
            lag=max((node.behind for node in nodes if node.behind is not None), default=None),
            plan=None if planned is None else planned.plan.version,
            queries=0 if planned is None else len(planned.queries),
            rate=self._rate(counts.get("events", 0)) if state == "running" else None,
            batch=_set(root.step),
            flush=_set(root.flush),
            event_bytes=_set(root.event_bytes),
            error=error,
            results=self._results.location,
        )
        return Snapshot(job, counts, nodes, tuple(root.limits), notices(root))

    def _rate(self, events: int) -> float | None:
        """Events a second over the last looks; None: nothing is known yet."""
        at = time.monotonic()
        self._speed.seen(events, at)
        return self._speed.at(at)

    def _status_of(self, address: str) -> NodeStatus:
        return ask(address, AskStatus(), NodeStatus, self._security, PATIENCE)

    def _ask_between(self, places: Sequence[PlaceStatus]) -> None:
        """Asks nodes that have children how these stand."""
        parents = {place.parent for place in places}
        listening = [p for p in places if p.parent is not None and p.listen and p.id in parents]
        if len(listening) > ASKED:
            start = self._turn % len(listening)
            listening = (listening * 2)[start : start + ASKED]
            self._turn += ASKED
        found = self._pool.map(lambda place: (place.id, self._answer(place)), listening)
        known = {place.id for place in places}
        held = {id: said for id, said in self._between.items() if id in known}
        self._between = held | dict(found)

    def _answer(self, place: PlaceStatus) -> NodeStatus | None:
        try:
            return self._status_of(place.listen or "")
        except CatchmentError:
            return None

    def _plan_by(self, charter: int | None) -> Planned | None:
        """The plan of a version of the charter, which is asked for when that is new."""
        with self._lock:
            if charter != self._charter:
                with contextlib.suppress(CatchmentError):  # it is asked again with the next look
                    answer = ask(self.address, AskPlan(), PlanAnswer, self._security)
                    self._planned, self._charter = answer.planned(), charter
            return self._planned

    def _unreachable(self, why: str) -> Snapshot:
        """What can be said while the root does not answer."""
        if self._last is not None:
            nodes = node_views(self._last, {}, False)
            root = replace(nodes[0], state="missing") if nodes else None
            rest = [replace(node, state="unknown") for node in nodes[1:]]
            nodes = (*([root] if root else []), *rest)
        else:
            nodes = tuple(
                ShownNode(n.id, n.parent, _role(n.parent, n.source is None), "unknown")
                for n in self.job.nodes
            )
        hint = f"the root does not answer: {why}"
        job = JobView(self.name, "tree", "unreachable", error=hint, results=self._results.location)
        return Snapshot(job, dict((self._last and self._last.counts) or {}), nodes)

    def _last_words(self) -> NodeStatus | None:
        """How the tree ended, from a copy of the root's folder; None: it cannot be told."""
        root = next(node.id for node in self.job.nodes if node.parent is None)
        home = self._home(root)
        if home is None or not (home / "notes").is_dir():
            return None
        if holder(Folder(str(home))) is not None:
            return None  # somebody runs it, who does not answer
        if self._last is not None and self._last.life is None:
            return self._last  # it was read before, and nobody has run it since
        try:
            return self._from_copy(root, home)
        except (CatchmentError, OSError):
            return None  # it is being removed, damaged, or of another version

    def _from_copy(self, root: str, home: Path) -> NodeStatus | None:
        """How a root stands by its folder. To read a folder is to write in it, hence the copy."""
        size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
        if size > _COPIED:
            return None
        with tempfile.TemporaryDirectory(prefix="catchment-ui-") as folder:
            copy = Path(folder) / "root"
            shutil.copytree(home, copy)
            with contextlib.closing(FileDisk(copy)) as disk:
                member = Member(root, disk, now(), deliver=lambda _: None)
                if member.charter is not None:
                    self._planned = member.charter.plans[member.charter.plan]
                    self._charter = member.charter.version
                return replace(status(member, set()), life=None)

    def _home(self, id: str) -> Path | None:
        """The folder of a node, if it may be on this host."""
        node = next((node for node in self.job.nodes if node.id == id), None)
        if node is not None and node.home:
            return Path(node.home)
        if self.job.checkpoint is None:
            return None
        return Path(self.job.checkpoint) / file_name(id)

    # -- queries ---------------------------------------------------------------------------------

    def planned(self) -> Planned | None:
        return self._planned

    def check(self, query: Query) -> None:
        self._change(CheckQueries((query.record(),)))

    def add(self, query: Query) -> None:
        self._change(AddQueries((query.record(),)))

    def remove(self, name: str, drain: bool) -> None:
        self._change(RemoveQueries((name,), drain))

    def _change(self, question: CheckQueries | AddQueries | RemoveQueries) -> None:
        ask(self.address, question, TreeChange, self._security)

    # -- rows --------------------------------------------------------------------------------------

    def set_aside(self, kind: str, rows: int) -> pa.Table:
        """Rows set aside by nodes that read, as far as their folders are on this host."""
        found = []
        for node in self.job.nodes:
            home = self._home(node.id) if node.source is not None else None
            for place in [] if home is None else [home / "aside", home / "reader" / "aside"]:
                if place.is_dir():
                    table = newest_rows(Folder(str(place)), kind, rows)
                    if table.num_rows:
                        names = pa.repeat(pa.scalar(node.id), table.num_rows)
                        found.append(table.add_column(0, "node", names))
        if not found:
            return pa.table({})
        return pa.concat_tables(found, promote_options="permissive").slice(0, rows)


def node_views(
    root: NodeStatus, between: Mapping[str, NodeStatus | None], running: bool
) -> tuple[ShownNode, ...]:
    """All nodes of a tree, the root first, from what the root and nodes in between say."""
    places = root.places or []
    parents = {place.parent for place in places}
    told: dict[str, ChildStatus] = dict(root.children or {})
    for said in between.values():
        told |= {} if said is None else dict(said.children or {})
    silent = {id for id, said in between.items() if said is None}
    refused = dict(root.refused or {})
    frontiers = [root.frontier, *(child.frontier for child in told.values())]
    furthest = max((f for f in frontiers if isinstance(f, int)), default=None)
    found = []
    for place in places:
        role = _role(place.parent, place.id in parents)
        if place.parent is None:
            made = ShownNode(
                place.id,
                None,
                role,
                "connected" if running else "ended" if root.frontier == "ended" else "missing",
                frontier=_set(root.frontier),
                why=_set(root.error),
            )
        else:
            made = _child(place, role, told.get(place.id), running, place.parent in silent)
        behind = _behind(made.frontier, furthest)
        found.append(replace(made, behind=behind, why=refused.get(place.id, made.why)))
    return tuple(sorted(found, key=lambda node: node.parent is not None))


def _child(
    place: PlaceStatus, role: NodeRole, said: ChildStatus | None, running: bool, unasked: bool
) -> ShownNode:
    """A node as its parent sees it."""
    if said is None:
        state: NodeState = "unknown" if unasked or not running else "missing"
        return ShownNode(place.id, place.parent, role, state)
    link = said.link or {}
    state = "connected" if said.connected else "ended" if said.frontier == "ended" else "missing"
    if unasked:
        state = "unknown"
    early = link.get("early rows")
    return ShownNode(
        place.id,
        place.parent,
        role,
        state,
        frontier=said.frontier,
        silent=0.0 if said.connected else said.silent_seconds,
        messages=said.received,
        nbytes=said.nbytes,
        bandwidth=link.get("bandwidth"),
        early=None if early is None else int(early),
        alpha=link.get("alpha"),
    )


def notices(root: NodeStatus) -> tuple[Notice, ...]:
    """What a person should know of a tree."""
    found = [Notice("never read", one.origin, one.reason) for one in root.never_read]
    found += [Notice("never read", id, u.reason) for id, u in root.never_read_by_nodes.items()]
    for id, filling in root.filling_by_nodes.items():
        others = filling if id != root.node else ()
        found += [Notice("filling up", id, one.line) for one in others]
    found += [Notice("damaged", root.node, text) for text in root.damage]
    found += [Notice("refused", id, why) for id, why in (root.refused or {}).items()]
    for id, child in (root.children or {}).items():
        said = child.set_aside or {}
        found += [Notice("message set aside", f"{id}, {seq}", why) for seq, why in said.items()]
    return tuple(found)


def _behind(frontier: ShownTime, furthest: int | None) -> float | None:
    if not isinstance(frontier, int) or furthest is None:
        return None
    return round((furthest - frontier) / 1e6, 3)


def _role(parent: str | None, merges: bool) -> NodeRole:
    return "root" if parent is None else "merges" if merges else "reads"


def _set(value: T | UnsetType) -> T | None:
    """What is not set is None."""
    return None if isinstance(value, UnsetType) else value
