"""The port of a real root under attack, beside a tree that goes on: nothing falls, grows or errs.

Attackers send garbage, halves of connections, slow bytes, huge frames, floods, and what a real node
once said: replayed, mutated, with no token, a wrong one and a right one. `CATCHMENT_FUZZ_SECONDS`
says for how long in all; everything stays on loopback addresses.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catchment.errors import CatchmentError, RefusedError
from catchment.measure.ports import free_port
from catchment.measure.proxy import Proxy
from catchment.transport import OLDEST, PROTOCOL, Limits, ParentLink, Security
from catchment.transport.frames import MAGIC, Frames, frame
from catchment.tree.lives import LOST, OLD_COPY, TAKEN_OVER
from notes import ask
from patience import PATIENCE
from test_transport_security import keys
from test_tree_chaos import QUERIES, check

__all__ = ["keys"]

SECONDS = float(os.environ.get("CATCHMENT_FUZZ_SECONDS", "6"))
SEED = int(os.environ.get("CATCHMENT_SEED", "1"))
HOST = "127.0.0.1"
TOKENS = {"admin": "for-commands", **{id: f"of-{id}" for id in ("e1", "e2", "e3", "e4")}}
PACE = 250
"""Events a second of each node, on the clock."""
ATTACKERS = 4
MEGABYTE = 1 << 20
FOR_GOOD = (OLD_COPY, LOST, TAKEN_OVER)
"""Refusals after which a node has to be added anew."""
JOINS = 60.0
"""Seconds in which a node must get in, whatever others do: it tries for 10 s, pauses for 2 s, and
tries again. They are counted by `FairClock`."""
ROOM = 60 * MEGABYTE
"""Bytes that the root may hold besides what it says that open windows hold: of peers, of threads,
and what the system's allocator keeps."""


def source(seed: int, events: int) -> dict[str, Any]:
    return {
        "type": "generator",
        "seed": seed,
        "rate": 500,
        "keys": 4,
        "events": events,
        "per_batch": 50,
        "pace": PACE,
        "gaps": ["1s", "2s"],
    }


class Tree:
    """A root and nodes that read, all in processes; a place e3 that attackers take, whose token
    they have; and a place e4 that a node takes again and again meanwhile."""

    def __init__(self, home: Path, events: int, security: dict[str, Any], leaves: int) -> None:
        self.home, self.port = home, free_port()
        self.address = f"{HOST}:{self.port}"
        self.security = Security.model_validate(security)
        self.sources = {f"e{number}": source(number, events) for number in range(1, leaves + 1)}
        nodes: list[dict[str, Any]] = [{"id": "root", "listen": self.address}]
        for id in (*self.sources, "e3", "e4"):
            read = self.sources.get(id) or source(3, events)
            nodes.append({"id": id, "parent": "root", "source": read})
        job = {
            "name": "fuzzed",
            "late": "update",
            "keep": "1h",
            "timeout": "1h",
            "queries": QUERIES,
            "checkpoint": str(home / "state"),
            "nodes": nodes,
            "security": security,
            "sinks": [{"type": "parquet", "path": str(home / "out")}],
        }
        self.job = home / "job.yaml"
        self.job.write_text(json.dumps(job))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log = (home / "log.txt").open("wb")
        self.granted: dict[str, Any] = {}
        """What the root has told e3 to say in its hellos."""

    def start(self, id: str, parent: str | None = None) -> None:
        command = [sys.executable, "-m", "catchment.cli.main", "node", id, str(self.job)]
        command += ["--engine", "embedded", *(["--parent", parent] if parent else [])]
        self.processes[id] = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def status(self) -> dict[str, Any]:
        return ask(self.address, "status", {}, self.admin, timeout=60)

    @property
    def admin(self) -> Security:
        return self.security.model_copy(update={"token": TOKENS["admin"]})

    def words(self) -> str:
        return (self.home / "log.txt").read_text(errors="replace")[-3000:]

    def until(self, met: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not met():
            assert self.processes["root"].poll() in (None, 0), self.words()
            assert time.monotonic() < end, self.words()
            time.sleep(0.1)

    def flows(self) -> bool:
        """Whether every node is there and has sent something."""
        with contextlib.suppress(CatchmentError):
            children = self.status().get("children", {})
            return all(children.get(id, {}).get("received", 0) > 2 for id in self.sources)
        return False

    def end(self) -> None:
        """e3 and e4 are not waited for any more; the others come to their end, and so does the
        root."""
        for id in ("e3", "e4"):
            ask(self.address, "remove node", {"id": id}, self.admin, timeout=60)
        events, grew = -1, time.monotonic()
        while self.processes["root"].poll() is None:
            # On a busy machine nodes read what is left for long: it must become more.
            with contextlib.suppress(CatchmentError):
                if (now := self.status()["counts"]["events"]) > events:
                    events, grew = now, time.monotonic()
            assert time.monotonic() < grew + PATIENCE, f"{events} events: {self.words()}"
            time.sleep(0.5)
        assert self.processes["root"].poll() == 0, self.words()

    def kill(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Kind and body of each frame that a real node sent in its life."""
    tree = Tree(tmp_path_factory.mktemp("recorded"), 1000, {"tokens": TOKENS}, 1)
    with Proxy((HOST, tree.port), record=4 * MEGABYTE) as proxy:
        try:
            tree.start("root")
            tree.start("e1", proxy.address)
            tree.until(tree.flows)
            tree.end()
        finally:
            tree.kill()
        stream = max(proxy.recorded, key=len)
    assert stream.startswith(MAGIC)
    cutter = Frames()
    cutter.feed(bytes(stream[len(MAGIC) :]))
    found = []
    while (one := cutter.next()) is not None:
        found.append(one[0] + one[1])
    assert {one[:1] for one in found} >= {b"w", b"h", b"m"}
    return found


class Held:
    """What a process holds, while a thread looks: memory, threads, descriptors at their most."""

    def __init__(self, pid: int) -> None:
        self._at = Path(f"/proc/{pid}")
        self.first = self.most = self.now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def now(self) -> tuple[int, int, int]:
        # Without the code of libraries, which is read when it is first used.
        there, shared = map(int, (self._at / "statm").read_text().split()[1:3])
        pages = there - shared
        threads, files = (len(os.listdir(self._at / name)) for name in ("task", "fd"))
        return pages * os.sysconf("SC_PAGESIZE"), threads, files

    def _look(self) -> None:
        while not self._over.wait(0.05):
            with contextlib.suppress(OSError):
                self.most = tuple(map(max, self.most, self.now()))  # type: ignore[assignment]

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class FairClock:
    """Counts the time that has passed for this process and another one, while a thread looks.

    On a busy machine both wait for a processor most of the time. What takes a second then would
    take a fraction of it otherwise; so of each moment that share counts for which their threads
    ran, of the time for which they ran or could have. A process that sleeps or hangs waits for
    nobody: its time counts in full.
    """

    def __init__(self, pid: int) -> None:
        self.now = 0.0
        self._homes = [Path("/proc/self/task"), Path(f"/proc/{pid}/task")]
        self._seen = self._threads()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _threads(self) -> dict[Path, tuple[int, int]]:
        """For how many nanoseconds each thread has run, and has waited for a processor."""
        found = {}
        for home in self._homes:
            with contextlib.suppress(OSError):
                for task in home.iterdir():
                    with contextlib.suppress(OSError):
                        ran, waited = (task / "schedstat").read_text().split()[:2]
                        found[task] = int(ran), int(waited)
        return found

    def _look(self) -> None:
        last = time.monotonic()
        while not self._over.wait(0.2):
            before, self._seen = self._seen, self._threads()
            ran = waited = 0
            for task, (run, wait) in self._seen.items():
                ran += run - before.get(task, (0, 0))[0]
                waited += wait - before.get(task, (0, 0))[1]
            now = time.monotonic()
            self.now += (now - last) * (ran / (ran + waited) if waited > 0 else 1.0)
            last = now

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


class Attacker:
    """One thread of mischief. It never speaks as e1 or e2 with a hello that could be believed."""

    def __init__(self, tree: Tree, recorded: list[bytes], clock: FairClock, seed: int) -> None:
        self.tree, self.recorded, self.clock = tree, recorded, clock
        self.dice = random.Random(seed)
        self.left: list[socket.socket] = []
        self.done: dict[str, int] = {}
        self.accepted = 0
        """Hellos of e3 after which mutated frames were looked at."""
        self.anews = 0
        """How often e3 had to be removed and added again."""
        self.error: BaseException | None = None

    def run(self, end: float) -> None:
        """Every trick once, and then by chance until a time."""
        tricks = [
            self.garbage,
            self.silence,
            self.slowness,
            self.hugeness,
            self.flood,
            self.replay,
            self.mutated_stream,
            self.mutated_stream,
            self.mutated_as_e3,
            self.mutated_as_e3,
            self.mutated_question,
            self.half,
        ]
        try:
            due = self.dice.sample(tricks, len(tricks))
            while due or time.monotonic() < end:
                trick = due.pop() if due else self.dice.choice(tricks)
                with contextlib.suppress(OSError):
                    trick()
                self.done[trick.__name__] = self.done.get(trick.__name__, 0) + 1
                while len(self.left) > 40:
                    self.left.pop(0).close()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.error = error
        for one in self.left:
            one.close()

    # -- connections ------------------------------------------------------------------------------

    def raw(self) -> socket.socket:
        return socket.create_connection((HOST, self.tree.port), timeout=30)

    def connected(self) -> socket.socket:
        """One that speaks TLS where the root does."""
        made = self.raw()
        if not self.tree.security.tls:
            return made
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            return context.wrap_socket(made)
        except OSError:
            made.close()
            raise

    def send(
        self,
        data: bytes,
        connection: socket.socket | None = None,
        first: float = 0.1,
        then: float = 0.1,
    ) -> bytes:
        """Sends bytes, and reads what is answered until nothing comes for so many seconds."""
        found = bytearray()
        with connection or self.connected() as one, contextlib.suppress(OSError):
            one.sendall(data)
            one.settimeout(first)
            while len(found) < MEGABYTE and (data := one.recv(65536)):
                found += data
                one.settimeout(then)
        assert b"Traceback" not in found
        return bytes(found)

    def join(self) -> None:
        """Says hello as e3, which must work, and keeps what the root says e3 is."""
        note: dict[str, Any] = {}
        for _ in range(2):
            kind, end, failed = b"", self.clock.now + 2 * JOINS, list[str]()
            while kind != b"r":
                told = note, failed[-20:], self.hello(), self.tree.words()
                assert self.clock.now < end, told
                if kind == b"x" and note["what"] in FOR_GOOD:
                    self.anew()
                try:
                    kind, note = self.greeted()
                except OSError as error:  # the machine may be busy
                    failed.append(f"{self.clock.now:.1f}: {error!r}")
            told = note["answer"]
            if told.get("life"):
                granted = {"life": told["life"], "living": True, "added": told.get("added", 0)}
                self.tree.granted = granted

    def greeted(self) -> tuple[bytes, dict[str, Any]]:
        """What is answered to a hello of e3, for which a node waits for so long."""
        cutter = Frames()
        with self.connected() as one:
            one.settimeout(30)
            one.sendall(self.framed(self.who("e3", True), self.hello()))
            while (found := cutter.next()) is None and (data := one.recv(65536)):
                cutter.feed(data)
        return (b"", {}) if found is None else (found[0], json.loads(found[1]))

    def anew(self) -> None:
        """Does what the refusal asks for. Whoever has a node's token may say that the next life of
        the node has begun, as a mutated heartbeat did: then the life before is over."""
        for what, asked in (
            ("remove node", {"id": "e3"}),
            ("add node", {"id": "e3", "parent": "root"}),
        ):
            ask(self.tree.address, what, asked, self.tree.admin, timeout=60)
        self.tree.granted = {}
        self.anews += 1

    def hello(self) -> bytes:
        """A hello of e3 that is right, whether or not it is asked for a life."""
        fresh = {"node": "e3", "epoch": 1, "job": None, "charter": -1, "sent": 0}
        return b"h" + json.dumps(fresh | self.tree.granted).encode()

    def answer(self, data: bytes) -> dict[str, Any] | None:
        """The first answer, if it is no refusal."""
        cutter = Frames()
        cutter.feed(data)
        found = cutter.next()
        return json.loads(found[1]) if found is not None and found[0] == b"r" else None

    def who(self, name: str, right: bool) -> bytes:
        token = self.dice.choice([None, "", "guess", TOKENS["e2" if name != "e2" else "e1"]])
        given = TOKENS.get(name) if right else token
        shown = {} if given is None else {"token": given}
        said = {"protocol": PROTOCOL, "oldest": OLDEST, "name": name, **shown}
        return b"w" + json.dumps(said).encode()

    def framed(self, *packed: bytes) -> bytes:
        return MAGIC + b"".join(b"".join(frame(one)) for one in packed)

    def mutated(self, data: bytes) -> bytes:
        """Some bytes changed, lost, doubled or put in."""
        made, dice = bytearray(data), self.dice
        for _ in range(dice.choice([1, 1, 1, 2, 5, 50])):
            at, length = dice.randrange(len(made) + 1), dice.choice([1, 1, 2, 8, 100])
            match dice.randrange(5):
                case 0:
                    made[at : at + 1] = bytes(
                        b ^ (1 << dice.randrange(8)) for b in made[at : at + 1]
                    )
                case 1:
                    del made[at : at + length]
                case 2:
                    made[at:at] = made[at : at + length] * dice.choice([1, 1, 30])
                case 3:
                    made[at:at] = dice.randbytes(length)
                case _:
                    made[at : at + length] = dice.choice([b"\x00", b"\xff", b"{", b"9"]) * length
        return bytes(made)

    # -- tricks -----------------------------------------------------------------------------------

    def garbage(self) -> None:
        text = [
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01",
            MAGIC,
        ]
        data = self.dice.choice([b"", *text]) + self.dice.randbytes(self.dice.choice([0, 9, 9999]))
        self.send(data, self.dice.choice([self.raw, self.connected])())

    def silence(self) -> None:
        self.left.append(self.dice.choice([self.raw, self.connected])())

    def half(self) -> None:
        """Begins, and leaves: with a reset, with half of a stream closed, or not at all."""
        one = self.connected()
        self.left.append(one)
        data = self.framed(self.who("e3", self.dice.random() < 0.5), *self.recorded[1:3])
        one.sendall(data[: self.dice.randrange(len(data))])
        if self.dice.random() < 0.5:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        else:
            one.shutdown(socket.SHUT_WR)

    def slowness(self) -> None:
        data = self.framed(self.who("e3", True), b'h{"epoch":1}')
        with self.connected() as one:
            for byte in data[: self.dice.randrange(40)]:
                one.sendall(bytes([byte]))
                time.sleep(0.01)

    def hugeness(self) -> None:
        """Announces gigabytes, and sends some megabytes of them."""
        size = self.dice.choice([1 << 17, 1 << 24, 300 << 20, 1 << 33])
        length = bytearray()
        while size:
            length.append((size & 0x7F) | (0x80 if size > 0x7F else 0))
            size >>= 7
        begin = self.dice.choice([[], [self.who("e3", False)], [self.who("e3", True)]])
        kind = self.dice.choice([b"w", b"h", b"m", b"b", b"a", b"z"])
        with self.connected() as one:
            one.sendall(self.framed(*begin) + bytes(length) + kind)
            for _ in range(self.dice.choice([1, 16])):
                one.sendall(bytes(MEGABYTE))

    def flood(self) -> None:
        many = []
        try:
            for _ in range(100):
                many.append(self.raw())
        finally:
            for one in many:
                one.close()

    def replay(self) -> None:
        """All that e1 of another tree said, as itself: token and all, or without."""
        said = [self.who("e1", False), *self.recorded[1:]]
        whole = self.framed(*self.dice.choice([said, self.recorded]))
        answers = self.send(whole)
        assert b'"ack"' not in answers

    def mutated_stream(self) -> None:
        begin = self.dice.choice(
            [self.recorded[0], self.who("e3", False), self.who("admin", False)]
        )
        some = self.dice.sample(self.recorded, min(5, len(self.recorded)))
        self.send(self.mutated(self.framed(begin, *some)))

    def mutated_as_e3(self) -> None:
        """With a right token and a right hello: frames whose bodies are mutated, or not its own."""
        packed = self.hello()
        frames = [one for one in self.recorded if one[:1] in b"mb"]
        some = [
            one[:1] + self.dice.choice([self.mutated, bytes])(one[1:])
            for one in self.dice.sample(frames, min(5, len(frames)))
        ]
        if self.dice.random() < 0.3:
            packed = b"h" + self.mutated(packed[1:])
        data = self.framed(self.who("e3", True), packed, *some)
        answers = self.send(data, first=30.0, then=1.0)
        self.accepted += self.answer(answers) is not None

    def mutated_question(self) -> None:
        what = self.dice.choice(["status", "queries", "no such", "", "statu\u0000s"])
        packed = b"a" + json.dumps({"what": what, "deep": [[[]]]}).encode()
        if self.dice.random() < 0.7:
            packed = b"a" + self.mutated(packed[1:])
        self.send(self.framed(self.who("admin", self.dice.random() < 0.7), packed))


class Joiner:
    """A node e4 whose token nobody else has: it gets in, leaves, and comes again."""

    def __init__(self, tree: Tree, clock: FairClock) -> None:
        self.tree, self.clock = tree, clock
        self.took: list[float] = []
        """Seconds from its first try until it was in, each time."""
        self.refused: list[str] = []
        self.failed: list[str] = []
        """What else it was told, and when."""
        self._granted: dict[str, Any] = {}

    def run(self, end: float) -> None:
        while time.monotonic() < end:
            begun, pause = self.clock.now, 0.1
            while not self._joins() and self.clock.now < begun + 3 * JOINS:
                time.sleep(pause)
                pause = min(2.0, 2 * pause)
            self.took.append(self.clock.now - begun)
            time.sleep(0.5)

    def _joins(self) -> bool:
        security = self.tree.security.model_copy(update={"token": TOKENS["e4"]})
        link = ParentLink(self.tree.address, "e4", self._hello, lambda _: None, security)
        try:
            told = json.loads(link.open())
        except RefusedError as error:
            self.refused.append(str(error))
            return False
        except CatchmentError as error:
            self.failed.append(f"{self.clock.now:.1f}: {error}")
            return False
        finally:
            link.close()
        self._granted = {"life": told["life"], "living": True, "added": told.get("added", 0)}
        return True

    def _hello(self) -> bytes:
        return json.dumps({"node": "e4", "charter": -1, **self._granted}).encode()


@pytest.mark.slow
@pytest.mark.timeout(max(900, 20 * SECONDS))
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_a_port_under_attack(
    tmp_path: Path, recorded: list[bytes], keys: Any, secure: bool
) -> None:
    seconds = SECONDS / 2
    sys.stdout.write(f"CATCHMENT_SEED={SEED} CATCHMENT_FUZZ_SECONDS={SECONDS:g}\n")
    security = (keys("a", "ours") if secure else Security()).model_dump() | {"tokens": TOKENS}
    tree = Tree(tmp_path, int(PACE * (seconds + 10)), security, 2)
    try:
        for id in ("root", *tree.sources):
            tree.start(id)
        tree.until(tree.flows)
        held = Held(tree.processes["root"].pid)
        clock = FairClock(tree.processes["root"].pid)
        attackers = [Attacker(tree, recorded, clock, SEED + number) for number in range(ATTACKERS)]
        attackers[0].join()
        end = time.monotonic() + seconds
        joiner = Joiner(tree, clock)
        threads = [threading.Thread(target=one.run, args=(end,)) for one in (joiner, *attackers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.error for one in attackers] == [None] * ATTACKERS
        attackers[0].join()
        clock.stop()
        tree.until(lambda: held.now()[2] <= held.first[2] + 4)
        held.stop()
        limit, limits = Limits(), {one["name"]: one["used"] for one in tree.status()["limits"]}
        memory, busy, files = map(int.__sub__, held.most, held.first)
        left = held.now()[0] - held.first[0]
        # e3 is waited for: what the others send is held meanwhile, attack or no attack. It is
        # there twice for a moment when small tables are joined.
        kept = 2 * limits["state of windows"]
        sys.stdout.write(
            f"{memory / MEGABYTE:.0f} MB more at most, {left / MEGABYTE:.0f} MB at the end, of "
            f"which open windows {kept / 2 / MEGABYTE:.1f} MB\n"
            f"{len(joiner.took)} joins under attack: {sum(joiner.took) / len(joiner.took):.2f} s, "
            f"{max(joiner.took):.2f} s at most; e3 began anew {attackers[0].anews} times\n"
        )
        assert joiner.took and not joiner.refused, joiner.refused
        assert max(joiner.took) < JOINS, joiner.failed[-20:]
        assert memory < kept + ROOM and left < kept + ROOM
        assert busy <= limit.workers and files <= 2 * (limit.strangers + limit.pending)
        assert len(tree.words()) == 0 or (tmp_path / "log.txt").stat().st_size < MEGABYTE
        assert all(one.poll() in (None, 0) for one in tree.processes.values()), tree.words()
        tree.end()
        check(tmp_path / "out", SimpleNamespace(sources=tree.sources))  # type: ignore[arg-type]
    finally:
        tree.kill()
    counts: dict[str, int] = {}
    for one in attackers:
        for name, count in one.done.items():
            counts[name] = counts.get(name, 0) + count
    sys.stdout.write(
        f"{counts}; at most {memory / MEGABYTE:.0f} MB, {busy} threads, {files} files\n"
    )
    assert sum(one.accepted for one in attackers) > 0
    assert len(counts) == 10
