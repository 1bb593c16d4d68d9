"""Links between nodes: order, refusals, security, versions, and a network that misbehaves."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from catchment.errors import RefusedError
from catchment.measure.ports import free_port
from catchment.measure.proxy import Proxy
from catchment.transport import (
    OLDEST,
    PROTOCOL,
    AddressError,
    Limits,
    ParentLink,
    PeerUnreachableError,
    Security,
    Server,
    agree,
)
from catchment.transport.frames import MAGIC, Frames, frame
from catchment.transport.wire import EMPTY, Who
from notes import ask, note, read
from patience import PATIENCE, wait_for

HOST = "127.0.0.1"


class Recorder:
    """A handler that remembers, and fails on demand."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def hello(self, node: str, hello: bytes) -> bytes:
        if read(hello).get("unwanted"):
            raise RefusedError("you are not wanted", given=5, hint="go elsewhere")
        self.seen.append(("hello", node))
        return note({"welcome": node})

    def message(self, node: str, body: bytes) -> bytes:
        self.fail(body.decode("latin-1"))
        self.seen.append((node, body))
        return note({"ack": len(self.seen)})

    def beat(self, node: str, beat: bytes) -> bytes:
        self.seen.append((node, read(beat)))
        return note({"ack": read(beat).get("at")})

    def ask(self, question: bytes) -> bytes:
        asked = read(question)
        what = asked.pop("what", "nothing")
        self.fail(what)
        return note({what: asked})

    def fail(self, word: str) -> None:
        if word == "fail":
            raise RuntimeError("a bug")
        if word == "refuse":
            raise RefusedError("not this one", given=word)

    def bodies(self) -> list[Any]:
        return [body for who, body in self.seen if who != "hello"]


def until(met: Callable[[], object]) -> None:
    wait_for(met, 0.005)


class Raw:
    """The connecting side of a connection, byte by byte."""

    def __init__(self, where: tuple[str, int]) -> None:
        self.socket = socket.create_connection(where, timeout=PATIENCE)
        self.frames = Frames()

    def send(self, *packed: bytes) -> None:
        self.socket.sendall(b"".join(b"".join(frame(one)) for one in packed))

    def read(self) -> tuple[bytes, Any] | None:
        """The next frame, its note read; None at the end."""
        while (found := self.frames.next()) is None:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.frames.feed(data)
        return found[0], json.loads(found[1] or b"{}")

    def close(self) -> None:
        self.socket.close()


def who(name: str, **more: Any) -> bytes:
    return b"w" + note({"protocol": PROTOCOL, "oldest": OLDEST, "name": name, **more})


def welcome(name: str) -> dict[str, Any]:
    """What is answered to a hello."""
    return {"protocol": PROTOCOL, "limit": 256 << 20, "answer": {"welcome": name}}


class Tree:
    """A server, the links opened to it, and what each heard."""

    def __init__(self) -> None:
        self.handler = Recorder()
        self.closing: list[Any] = []

    def serve(self, security: Security | None = None, port: int = 0, **limits: Any) -> Server:
        self.server = Server(f"{HOST}:{port}", self.handler, security, Limits(**limits))
        self.server.start()
        self.closing.append(self.server.stop)
        return self.server

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.port}"

    def raw(self, *packed: bytes) -> Raw:
        """A connection whose bytes the test makes itself."""
        made = Raw((HOST, self.server.port))
        self.closing.append(made.close)
        made.send(*packed)
        return made

    def proxy(self) -> Proxy:
        proxy = Proxy((HOST, self.server.port))
        self.closing.append(proxy.close)
        return proxy

    def link(
        self, node: str = "a", security: Security | None = None, address: str = "", **options: Any
    ) -> tuple[ParentLink, list[dict[str, Any]]]:
        heard: list[dict[str, Any]] = []
        hello = options.pop("hello", {})
        options.setdefault("timeout", PATIENCE)
        link = ParentLink(
            address or self.address,
            node,
            lambda: note(hello),
            lambda found: heard.append(read(found)),
            security,
            **options,
        )
        self.closing.append(link.close)
        link.open()
        return link, heard


@pytest.fixture
def tree() -> Iterator[Tree]:
    made = Tree()
    yield made
    for close in reversed(made.closing):
        close()


def test_messages_beats_and_pushes_go_both_ways_in_order(tree: Tree) -> None:
    server = tree.serve()
    link, heard = tree.link("a")
    sent: list[Any] = []
    for at in range(200):
        sent.append(random.randbytes(random.choice([0, 1, 100, 70_000])))
        link.send(sent[-1])
        if at % 10 == 0:
            sent.append({"at": -at, "name": "Zoë"})
            link.beat(note(sent[-1]))
    until(lambda: len(heard) == 220)
    assert tree.handler.bodies() == sent
    assert [note["ack"] for note in heard] == [
        body["at"] if isinstance(body, dict) else at + 2 for at, body in enumerate(sent)
    ]
    assert all(server.push("a", note({"push": number})) for number in range(50))
    until(lambda: len(heard) == 270)
    assert heard[220:] == [{"push": number} for number in range(50)]
    assert not server.push("b", note({"push": 0})) and server.links() == {"a"}
    link.close()
    until(lambda: link.closed and not server.links())
    assert link.error is None
    assert not server.push("a", note({}))


def test_what_was_sent_before_close_arrives(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchment.transport.link.GRACE", PATIENCE)
    tree.serve()
    link, _ = tree.link()
    for number in range(100):
        link.send(str(number).encode())
    link.close()
    assert tree.handler.bodies() == [str(number).encode() for number in range(100)]
    with pytest.raises(PeerUnreachableError, match="the link is not open"):
        link.send(b"late")


def test_hello_is_answered_or_refused(tree: Tree) -> None:
    tree.serve()
    link, _ = tree.link("a")
    assert link._answer == note({"welcome": "a"})
    with pytest.raises(RefusedError) as refusal:
        tree.link("b", hello={"unwanted": True})
    assert str(refusal.value) == "you are not wanted (given: 5); go elsewhere"
    assert tree.server.links() == {"a"}
    for name in ("", "admin"):
        with pytest.raises(RefusedError, match="a hello must name a node"):
            tree.link(name)


def test_newest_link_of_a_node_wins(tree: Tree) -> None:
    server = tree.serve()
    first, _ = tree.link("a")
    other, _ = tree.link("b")
    second, heard = tree.link("a")
    until(lambda: first.closed)
    assert isinstance(first.error, RefusedError)
    assert first.error.what == "a newer link of the same node took this one's place"
    with pytest.raises(RefusedError, match="newer link"):
        first.send(b"x")
    second.send(b"y")
    server.push("a", note({"for": "second"}))
    until(lambda: len(heard) == 2)
    assert {"for": "second"} in heard
    assert not second.closed and not other.closed and server.links() == {"a", "b"}


def test_old_link_is_silent_once_the_new_one_is_greeted(tree: Tree) -> None:
    tree.serve()
    old, _ = tree.link("a")
    entered, leave = threading.Event(), threading.Event()
    tree.handler.fail = lambda word: entered.set() or leave.wait(PATIENCE)
    for body in (b"1", b"2", b"3"):
        old.send(body)
    assert entered.wait(PATIENCE)
    threading.Timer(0.1, leave.set).start()
    tree.link("a")
    until(lambda: old.closed)
    names = [what if who == "a" else who for who, what in tree.handler.seen]
    assert names[:2] == ["hello", b"1"] and names[-1] == "hello"


def test_failing_handler_ends_one_link_and_is_logged(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.serve()
    link, _ = tree.link("a")
    other, heard = tree.link("b")
    link.send(b"fail")
    until(lambda: link.closed)
    assert str(link.error) == "the other side failed (given: RuntimeError); its log says where"
    assert any("a could not be handled" in one.getMessage() for one in caplog.records)
    refused, _ = tree.link("a")
    refused.send(b"refuse")
    until(lambda: refused.closed)
    assert isinstance(refused.error, RefusedError) and refused.error.what == "not this one"
    other.send(b"fine")
    until(lambda: heard)


@pytest.mark.parametrize("fails", [True, False])
def test_listener_may_fail_or_close_its_link(tree: Tree, fails: bool) -> None:
    tree.serve()
    link: ParentLink
    link = ParentLink(tree.address, "a", lambda: EMPTY, lambda _: 1 / 0 if fails else link.close())
    link.open()
    link.beat(note({}))
    until(lambda: link.closed and not tree.server.links())
    said = "an answer could not be handled (given: ZeroDivisionError)"
    assert said in str(link.error) if fails else link.error is None


def test_questions(tree: Tree) -> None:
    tree.serve()
    assert ask(tree.address, "status", {"deep": [1]}) == {"status": {"deep": [1]}}
    with pytest.raises(RefusedError, match=r"^not this one \(given: refuse\)$"):
        ask(tree.address, "refuse", {})
    with pytest.raises(PeerUnreachableError, match="the other side failed"):
        ask(tree.address, "fail", {})


def test_versions(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agree(Who(protocol=9, oldest=1)) == PROTOCOL
    tree.serve()

    def speaks(protocol: int | None, oldest: int | None) -> ParentLink:
        monkeypatch.setattr("catchment.transport.connection.PROTOCOL", protocol)
        monkeypatch.setattr("catchment.transport.connection.OLDEST", oldest)
        return tree.link("b")[0]

    speaks(protocol=9, oldest=1)
    ours = f"the one that listens {PROTOCOL}"
    for spoken, sentence, old in (
        ({"protocol": 0, "oldest": 0}, f"speaks 0, {ours}", "connects"),
        (
            {"protocol": 9, "oldest": 7},
            f"speaks 7 to 9, the one that listens {PROTOCOL}",
            "listens",
        ),
    ):
        with pytest.raises(RefusedError, match=sentence) as refusal:
            speaks(**spoken)
        assert refusal.value.hint == f"upgrade the one that {old}"
    with pytest.raises(RefusedError, match="did not say which versions"):
        speaks(protocol=None, oldest=1)


def test_addresses(tree: Tree) -> None:
    tree.serve(port=free_port())  # one that no connection is given once nobody listens there
    with pytest.raises(AddressError) as error:
        Server(tree.address, Recorder()).start()
    hint = "stop what uses it or choose another port"
    assert str(error.value) == f"the port is in use (given: {tree.address}); {hint}"
    with pytest.raises(AddressError, match="the address cannot be listened at"):
        Server("192.0.2.1:0", Recorder(), Security.model_validate("none")).start()
    for bad in ("localhost", ":1", "::1:5", "a:x", "a:70000"):
        with pytest.raises(AddressError, match="an address is a host and a port"):
            ask(bad, "status", {})
    tree.server.stop()
    for call in (lambda: tree.link(), lambda: ask(tree.address, "status", {})):
        with pytest.raises(PeerUnreachableError) as gone:
            call()
        hint = "is the node running, and is the address right?"
        assert str(gone.value) == f"nobody listens there (given: {tree.address}); {hint}"
    with pytest.raises(PeerUnreachableError, match="the host is not known"):
        tree.link(address="nowhere.invalid:7000")


def test_stopping(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tree.serve(port=free_port())
    link, _ = tree.link()
    server.stop()
    until(lambda: link.closed)
    assert isinstance(link.error, PeerUnreachableError) and "was stopped" in str(link.error)
    again = Server(f"{HOST}:{server.port}", tree.handler)
    again.start()

    # A peer that does not let go when it is told to.
    monkeypatch.setattr("catchment.transport.server.GRACE", 0.2)
    stuck = tree.raw()
    stuck.socket.sendall(MAGIC)
    stuck.send(who("stuck"), b"h")
    assert stuck.read() == (b"r", welcome("stuck"))
    begun = time.monotonic()
    again.stop()
    assert time.monotonic() - begun < 60
    ends = stuck.read()
    assert ends is not None and ends[0] == b"q" and ends[1]["what"] == "the other side was stopped"
    assert stuck.read() is None


def test_killed_server_is_noticed(tree: Tree) -> None:
    code = """
import time, types
from catchment.transport import Server
handler = types.SimpleNamespace(hello=lambda node, hello: b"{}")
with Server("127.0.0.1:0", handler) as server:
    print(server.port, flush=True)
    time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        link, _ = tree.link(address=f"{HOST}:{int(process.stdout.readline())}")
        process.kill()
        until(lambda: link.closed)
    assert (
        isinstance(link.error, PeerUnreachableError)
        and link.error.what == "the connection was lost"
    )
    assert link.error.hint is None


def test_connection_that_breaks(tree: Tree) -> None:
    tree.serve()
    other, _ = tree.link("other")
    proxy = tree.proxy()
    link, heard = tree.link(address=proxy.address)
    link.send(b"first")
    until(lambda: len(heard) == 1)
    proxy.sever(100_000)
    with contextlib.suppress(PeerUnreachableError):
        link.send(bytes(1_000_000))
    until(lambda: link.closed and tree.server.links() == {"other"})
    assert (
        isinstance(link.error, PeerUnreachableError)
        and link.error.what == "the connection was lost"
    )

    link, heard = tree.link(address=proxy.address)
    link.send(b"second")
    until(lambda: len(heard) == 1)
    proxy.cut()
    until(lambda: link.closed)
    with pytest.raises(PeerUnreachableError, match="nobody listens there"):
        tree.link(address=proxy.address)
    proxy.mend()
    tree.link(address=proxy.address)
    assert tree.handler.bodies() == [b"first", b"second"] and not other.closed


def test_slow_connection(tree: Tree) -> None:
    tree.serve()
    proxy = tree.proxy()
    proxy.delay(0.02)
    link, heard = tree.link(address=proxy.address)
    proxy.crawl(100_000)
    bodies = [bytes([number]) * 1000 for number in range(30)]
    begun = time.monotonic()
    for body in bodies:
        link.send(body)
    until(lambda: len(heard) == 30)
    assert time.monotonic() - begun > 0.25
    assert tree.handler.bodies() == bodies


def test_silent_connection(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchment.transport.link.GRACE", 0.2)
    tree.serve()
    proxy = tree.proxy()
    link, _ = tree.link(address=proxy.address)
    proxy.hold()
    link.beat(note({}))
    with pytest.raises(PeerUnreachableError, match=r"no answer came in (0\.3 s|time)"):
        tree.link("b", address=proxy.address, timeout=0.3)
    with pytest.raises(PeerUnreachableError, match="no answer came in time"):
        ask(proxy.address, "status", {}, timeout=0.3)
    link.close()
    proxy.mend()
    assert ask(proxy.address, "status", {}) == {"status": {}}
    assert link.closed
    until(lambda: "b" not in tree.server.links())  # what was held back comes first, then its end


def test_push_does_not_wait_for_a_peer_that_does_not_read(tree: Tree) -> None:
    server = tree.serve()
    reading = threading.Event()
    link = ParentLink(tree.address, "a", lambda: EMPTY, lambda _: reading.wait(PATIENCE))
    link.open()
    assert not all(server.push("a", note({"text": "x" * 1000})) for _ in range(20_000))
    reading.set()
    link.close()


def test_nothing_is_heard_of_a_link_after_it_was_closed(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the answer that was being heard: a node has another link by then."""
    monkeypatch.setattr("catchment.transport.link.GRACE", 0.2)
    server = tree.serve()
    going, heard = threading.Event(), list[Any]()
    link = ParentLink(
        tree.address,
        "a",
        lambda: EMPTY,
        lambda said: (heard.append(read(said)), going.wait(PATIENCE)),
    )
    link.open()
    assert all(server.push("a", note({"text": n})) for n in range(5))
    until(lambda: heard)
    time.sleep(0.1)  # the others have come too
    link.close()
    going.set()
    until(lambda: link.closed)
    assert heard == [{"text": 0}]


def test_bytes_of_a_heartbeat(tree: Tree) -> None:
    """Of both the beat and its answer, all of TCP's payload: two bytes besides each note."""
    tree.serve()
    proxy = tree.proxy()
    link, heard = tree.link(address=proxy.address)
    costs = []
    for at in range(1000, 1010):
        before = proxy.up + proxy.down
        link.beat(note({"at": at}))
        until(lambda: heard and heard[-1] == {"ack": at})  # noqa: B023
        time.sleep(0.1)  # in which more might be sent
        costs.append(proxy.up + proxy.down - before)
    assert costs == [len('b{"at":1000}r{"ack":1000}') + 2] * 10
