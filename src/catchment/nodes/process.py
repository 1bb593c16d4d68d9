"""A node as a process.

A loop takes steps, sends messages and heartbeats to the parent, and rests when there is nothing to
do. Threads of the transport bring the words of children and the answers of the parent; one lock
guards the member.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from catchment.durable.folder import Folder
from catchment.durable.lock import hold
from catchment.engine.times import now
from catchment.errors import CatchmentError, RefusedError, StateError
from catchment.model.capacity import Capacity
from catchment.nodes.bootstrap import NodeConfig, follow_file
from catchment.nodes.disk import FileDisk
from catchment.nodes.node_service import NodeService
from catchment.nodes.reader import InnerLink, Reader
from catchment.nodes.status import filling_of, limits, unread_of
from catchment.sinks.base import Delivery
from catchment.sinks.result_counts import ResultCounts, counts_of_results
from catchment.sources.aside_files import AsideFiles
from catchment.sources.base import Source
from catchment.sources.watch import SourceNote
from catchment.transport import ParentLink, PeerUnreachableError, Server
from catchment.tree.member import Member
from catchment.tree.words import Reply, read, said

log = logging.getLogger("catchment.node")

BEAT = 1.0
"""Seconds after which a node that has nothing to say lets its parent know that it is alive."""
_ASKED = 0.1
_REST = 0.02
_LOOK = 5.0
"""Seconds between looks at what of the source was never read."""
_TELLS = 5.0
"""Seconds after which a node that has messages to send says beside them how it stands."""
_SILENCE = 10.0
"""Seconds that an answer may take; a line may be dead without anybody being told."""
_SLOWEST = 256
"""Bytes a second that a line carries at least; so what is on its way says how long it may take."""
_PATIENT = 3
_REPORTED = 1000
"""Sentences that are remembered, so that each is said once."""
_TRIES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts to reach the parent, and how many may fail before it is said."""


class NodeProcess:
    """Runs one embedded node until its work is done or it is asked to stop."""

    def __init__(self, given: NodeConfig, beat: float = BEAT) -> None:
        self.given = given
        self.beat = beat
        self.lock = threading.RLock()
        self.news = threading.Event()
        self.stopping = threading.Event()
        self.folder_lock = hold(Folder(str(given.home)))
        """The folder is this process' alone."""
        self.disk = FileDisk(given.home)
        self.aside = AsideFiles(Folder(str(given.home / "aside")), given.aside_disk_bytes)
        self.tallies: ResultCounts | None = None
        """What a root has given of each query since it was started, where metrics are served. A
        root that is made delivers its last step again."""
        try:
            self.member = Member(
                given.id,
                self.disk,
                now(),
                parent=given.parent,
                keep=self.aside,
                charter=given.charter,
                source=self._reads(),
                deliver=self._delivers(),
            )
            if given.charter is not None:
                for text in follow_file(self.member, given.charter, now()):
                    log.warning("%s: %s", given.id, text)
        except BaseException:
            self.folder_lock.release()
            raise
        self.server: Server | None = None
        self.link: ParentLink | InnerLink | None = None
        self.last_error: str | None = None
        """What keeps it from working, in a sentence, while it does."""
        self._last_logged: str | None = None
        self.ended_by: CatchmentError | None = None
        """Why it was turned away for good, if it was."""
        self._reported: set[str] = set()
        self._goes = False
        """Whether it has another parent than the one it is linked with."""
        self._failed = 0
        self._silence_limit = _SILENCE
        self._next_look = 0.0
        self._next_try = self._quiet_until = self._spoke = self._beaten = self._waits_since = 0.0
        self.watchers: list[Callable[[NodeProcess], None]] = []
        self.service = NodeService(self.member, self.lock, self.news, self._changed)
        self.service.links, self.service.source = self.links, self.source_note
        self.service.capacities = self.capacities
        self.host: NodeService | None = None
        """What answers it, where its parent is in this process."""
        self._told_due: int | None = None
        """The time about which children were asked last."""
        self.reader: Reader | None = None
        """The reader of its own source, where it merges too."""
        if given.reader is not None:
            inner = type(self)(given.reader, beat)
            inner.host = self.service
            self.reader = Reader(inner)

    def _reads(self) -> Callable[[], Source] | None:
        """How the member gets at events; None: it reads none."""
        return None if self.given.source is None else self._source

    def _delivers(self) -> Callable[[Delivery], None] | None:
        """Where the member's results go; None: it gives none."""
        return self._deliver if self.given.parent is None else None

    def _source(self) -> Source:
        assert self.given.source is not None
        source = self.given.source.model_copy()
        source.check()
        source.open(Folder(str(self.given.home / "source")))
        return source

    def _deliver(self, delivery: Delivery) -> None:
        if self.tallies is not None:
            self.tallies.add(counts_of_results(delivery.results, now()))
        for sink in self.given.sinks:
            sink.write(delivery)

    def source_note(self) -> SourceNote | None:
        """What of the source was never read; None where nothing is read, or not yet."""
        if self.reader is not None:
            return self.reader.source_note()
        source = None if self.member.machine is None else self.member.machine.source
        if source is None:
            return None
        return SourceNote(tuple(source.never_read()), tuple(source.capacities()))

    def capacities(self) -> list[Capacity]:
        """How full what this process holds is, besides the node's state."""
        return [] if self.server is None else self.server.capacities()

    def _look_around(self) -> None:
        """Has the beats say what of the source was never read, and what is getting full."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        note = self.source_note() or SourceNote()
        self.member.unread = unread_of(note.never_read)
        held = [*limits(self.member), *note.limits, *self.capacities()]
        self.member.fills = filling_of(held)

    # -- running ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the server that children and commands connect to."""
        if self.given.listen is not None:
            self.server = Server(self.given.listen, self.service, self.given.security)
            self.server.start()
        if self.reader is not None:
            self.reader.start()

    def run(self) -> None:
        """Works until all is done, or `stop` is called."""
        if self.server is None:
            self.start()
        try:
            while not self.stopping.is_set() and not self.done:
                busy = self._work()
                self._look_around()
                self._talk()
                if self.reader is not None:
                    self.reader.check()
                for watcher in self.watchers:
                    watcher(self)
                if not busy:
                    self.news.wait(_REST)
                    self.news.clear()
            if self.done:
                for sink in self.given.sinks:
                    sink.finish()
            self._linger()
        finally:
            self.close()
        if self.ended_by is not None:
            raise self.ended_by

    def stop(self) -> None:
        self.stopping.set()
        self.news.set()

    def hurry(self) -> None:
        """Asks the parent for news at once."""
        self._spoke = 0.0
        self.news.set()

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        if self.link is not None:
            self.link.close()
        if self.server is not None:
            self.server.stop()
        with self.lock:
            self.member.close()
        self.disk.close()
        self.folder_lock.release()

    def _linger(self) -> None:
        """Waits until the children have disconnected, for a few heartbeats at most, so that they
        hear that their last messages have come."""
        end = time.monotonic() + 3 * self.beat
        while self.links() and time.monotonic() < end and not self.stopping.is_set():
            time.sleep(_REST)

    def links(self) -> set[str]:
        """The children that are connected."""
        found = set() if self.server is None else set(self.server.links())
        return found | (
            {self.reader.id} if self.reader is not None and self.reader.alive else set()
        )

    @property
    def done(self) -> bool:
        """Whether nothing can come any more, and all is passed on."""
        with self.lock:  # a step at hand may be half done
            return self.member.done

    def _work(self) -> bool:
        try:
            with self.lock:
                before = self.member.charter
                busy = self.member.step(now())
                self._report()
                if self.member.charter is not before:
                    self._changed()
                self._ask()
                if busy and self.member.machine is not None:
                    self.member.machine.commit()
            self.last_error = None
            return busy
        except CatchmentError as error:
            self._keep_error(error)
            self.stopping.wait(0.5)
            with self.lock, contextlib.suppress(CatchmentError):
                self.member.reload(now())
            return False

    def _report(self) -> None:
        """Says once what a person must know: an old folder, messages that were set aside."""
        member = self.member
        found = [] if member.outdated is None else [member.outdated]
        if member.inbox is not None:
            for id, aside in member.inbox.aside.items():
                found += [f"message {seq} of {id} was set aside: {w}" for seq, w in aside.items()]
        for text in found:
            if text not in self._reported:
                # What a child claims may differ each time: what holds no longer is forgotten.
                if len(self._reported) >= _REPORTED:
                    self._reported &= {*found}
                self._reported.add(text)
                log.error("%s: %s", self.given.id, text)

    def _keep_error(self, error: CatchmentError) -> None:
        self.last_error = str(error)
        if self.last_error != self._last_logged:
            log.warning("%s: %s", self.given.id, error)
        self._last_logged = self.last_error

    # -- the parent -------------------------------------------------------------------------------

    def _talk(self) -> None:
        if self.given.parent is None or time.monotonic() < self._next_try:
            return
        try:
            if self._goes and self.link is not None:
                self.link.close()
                self.link = None
            if self.link is None or self.link.closed:
                self._connect()
                if self._goes:
                    return  # the answer was a farewell: the next turn is with the new parent
            link = self.link
            assert link is not None
            if self._waits_since and time.monotonic() - self._waits_since > self._allowed:
                # A message may be large and the line slow: it will be given more time.
                self._silence_limit = 2 * self._allowed
                raise PeerUnreachableError("the parent does not answer", given=self.given.parent)
            if time.monotonic() < self._quiet_until:
                return
            with self.lock:
                bodies = list(self.member.outgoing(now()))
            for body in bodies:
                link.send(body)
            if self._beats(link, bool(bodies)) or bodies:
                self._spoke = time.monotonic()
                self._waits_since = self._waits_since or self._spoke
        except (PeerUnreachableError, RefusedError) as error:
            self._unlinked(error)
        except StateError as error:  # a message that the parent lacks cannot be read
            self._keep_error(error)
            self._next_try = time.monotonic() + _TRIES[-1]

    def _beats(self, link: ParentLink | InnerLink, spoke: bool) -> bool:
        """Says how the node stands, if it is time to; `spoke` where messages went just now."""
        at = time.monotonic()
        silent = not spoke and at - self._spoke >= self._pace
        if not silent and at - self._beaten < max(_TELLS, self.beat):
            return False
        with self.lock:
            beat = self.member.beat(now())
        link.beat(said(beat))
        self._beaten = at
        return True

    @property
    def _allowed(self) -> float:
        """Seconds that an answer may take, with so much on its way."""
        with self.lock:  # acknowledgements are taken on the link's own thread
            flow = self.member.flow
            flying = 0 if flow is None else flow.link.flying
        return min(self._silence_limit, _SILENCE + flying / _SLOWEST)

    @property
    def _pace(self) -> float:
        """Seconds between heartbeats. They are fewer until the tree knows the columns of its
        events, and where the root asks about count windows or values, because its questions come
        with the answers."""
        with self.lock:
            if self.member.machine is None:
                return min(self.beat, 0.1)
            return min(self.beat, _ASKED) if self.member.asked_soon else self.beat

    def _parent(self) -> str:
        """Where the parent is: as it was given, until the node moves."""
        assert self.given.parent is not None
        moved, charter = self.member.moved, self.member.charter
        if moved is None or charter is None or moved.to not in charter.places:
            return self.given.parent
        return charter.places[moved.to].listen or self.given.parent

    def _connect(self) -> None:
        with self.lock:
            self.member.lost()
            address = self._parent()
        if self.link is not None:
            if self.link.error is not None:
                raise self.link.error
            self.link.close()
        self.link = (
            ParentLink(address, self.given.id, self._hello, self._heard, self.given.security)
            if self.host is None
            else InnerLink(self.host, self.given.id, self._hello, self._heard)
        )
        self._goes = False
        reply = self.link.open()
        self._heard(reply)
        if not self.member.living and not self._goes:
            raise PeerUnreachableError(
                "the life that the parent granted cannot be kept",
                given=self.given.home,
                hint="is its disk full?",
            )
        self._failed = 0
        self.last_error = self._last_logged = None

    def _hello(self) -> bytes:
        with self.lock:
            return said(self.member.hello())

    def _unlinked(self, error: CatchmentError) -> None:
        self.last_error = str(error)
        with self.lock:
            over = self.member.turn_away(error)
        if over:
            log.error("%s: %s", self.given.id, error)
            self.ended_by = error
            self.stop()
        if self._failed >= _PATIENT:  # nodes that start together miss each other at first
            self._keep_error(error)
        if self.link is not None:
            self.link.close()
        self.link, self._waits_since = None, 0.0
        self._next_try = time.monotonic() + _TRIES[min(self._failed, len(_TRIES) - 1)]
        self._failed += 1

    def _heard(self, note: bytes) -> None:
        """Takes a reply of the parent; called on the link's own thread."""
        waited = time.monotonic() - self._waits_since if self._waits_since else 0.0
        self._waits_since = 0.0
        with self.lock:
            try:
                reply = read(Reply, note)
                if (reply.ack or 0) > self.member.acked:
                    self._silence_limit = max(_SILENCE, 3 * waited)
                before, moved = self.member.charter, self.member.moved
                self.member.heard(reply, now())
                self._goes = self._goes or self.member.moved is not moved
            except CatchmentError as error:
                self._keep_error(error)
                return
            if self.member.charter is not before:
                self._changed()
        if reply.full:
            self._quiet_until = time.monotonic() + 0.5  # the parent has no room just now
        self.news.set()

    def _ask(self) -> None:
        """Asks children at once how far they are, where a session is about to end."""
        machine = self.member.machine
        due = None if machine is None else machine.due
        if due is None or due == self._told_due:
            return
        self._told_due = due
        if self.reader is not None:
            self.reader.hurry()  # the answer brings the question
        if self.server is not None:
            for child, question in self.member.due_questions(self.server.links()).items():
                self.server.push(child, said(question))

    def _changed(self) -> None:
        """A newer charter goes down to all children at once."""
        if self.reader is not None:
            self.reader.hurry()
        if self.server is None or self.member.charter is None:
            return
        for child in self.member.charter.children(self.given.id):
            self.server.push(child, said(self.member.handed_down()))
