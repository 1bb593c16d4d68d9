"""Peers that are not to be trusted: tokens, TLS, certificates, garbage, and far too much of it."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import logging
import os
import random
import re
import select
import shutil
import socket
import ssl
import stat
import struct
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from catchment.errors import JobError, RefusedError
from catchment.job import load_job
from catchment.job.model import job_schema
from catchment.serving import certificates
from catchment.transport import (
    Limits,
    ParentLink,
    PeerUnreachableError,
    Security,
    SecurityError,
    Server,
    check_listening,
)
from catchment.transport.frames import MAGIC, Frames, frame
from catchment.transport.peer import Peer
from catchment.transport.tls import Tls
from catchment.transport.wire import EMPTY
from notes import ask, note, read
from patience import PATIENCE
from test_transport import HOST, Recorder, Tree, tree, until, welcome, who

__all__ = ["tree"]

SENT, KEPT = 100 << 20, 20 << 20
"""Bytes that a stranger sends, and by how many this process may grow meanwhile: by next to nothing
for it, and by what the memory of a process swings by itself."""

CONF = """
[ca]
default_ca = issuing
[issuing]
database = index
rand_serial = yes
new_certs_dir = .
default_md = sha256
policy = names
[names]
commonName = supplied
[extra]
subjectAltName = IP:127.0.0.1
"""


def test_tokens(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    tokens = {"a": "secret-a", "b": "secret-b", "admin": "root"}
    tree.serve(Security(tokens=tokens))
    for shown, why in (
        (None, "a token is needed here, and none was shown"),
        ("guess", "the token shown is not known here"),
        ("secret-b", "the token shown is another's"),
    ):
        security = Security(token=shown)
        with pytest.raises(RefusedError, match=why):
            tree.link("a", security)
        with pytest.raises(RefusedError, match=why):
            ask(tree.address, "status", {}, security)
        last = caplog.records[-1]
        assert last.levelno == logging.WARNING and last.name == "catchment.transport"
        assert HOST in last.getMessage() and why in last.getMessage()
    raw = tree.raw()
    raw.socket.sendall(MAGIC)
    raw.send(who("a", token="\ud800"))
    found = raw.read()
    assert found is not None and found[1]["what"] == "who a peer is cannot be understood"
    assert tree.handler.seen == [] and tree.server.links() == set()
    tree.link("a", Security(token="secret-a"))
    assert ask(tree.address, "status", {}, Security(token="root")) == {"status": {}}
    assert "secret" not in caplog.text and "secret" not in repr(Security(tokens=tokens))


def test_large_bodies_are_refused(tree: Tree) -> None:
    tree.serve(message=1000)
    link, heard = tree.link("a", limit=10_000)
    other, _ = tree.link("b")
    with pytest.raises(RefusedError, match=r"larger than the 1000 bytes .* \(given: 1001 bytes\)"):
        link.send(bytes(1001))
    link.send(bytes(1000))
    until(lambda: len(heard) == 1)
    link.limit = 10_000_000
    with contextlib.suppress(RefusedError):
        link.send(bytes(5_000_000))
    until(lambda: link.closed)
    assert isinstance(link.error, RefusedError)
    assert "larger than the 1000 bytes that are taken here (given: 5000000 bytes)" in str(
        link.error
    )
    assert not other.closed and tree.server.links() == {"b"}


def test_garbage_disturbs_nobody(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    tree.serve()
    link, heard = tree.link("a")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", random.randbytes(5000), b"PRI * HTTP/2.0\r\n\r\nSM"):
        raw = tree.raw()
        raw.socket.sendall(garbage)
        found = raw.read()
        assert found is not None and found[1]["what"] == "this is not the protocol of Catchment"
    hello = who("b")
    for sent, why in (
        ([b""], "a frame says nothing"),
        ([b"h"], "a peer says first who it is"),
        ([b"G"], "there is no such kind of frame"),
        ([b"wnot json"], "who a peer is cannot be understood"),
        ([b"w" + b"[" * 60_000], "who a peer is cannot be understood"),
        ([b"w[1]"], "who a peer is cannot be understood"),
        ([b"w{}"], "a peer did not say which versions of the protocol it speaks"),
        ([who("\ud800")], "who a peer is cannot be understood"),
        ([who("\t")], "a hello must name a node"),
        ([who("x" * 256)], "a hello must name a node"),
        ([who("b", token=5)], "who a peer is cannot be understood"),
        ([hello, hello], "a link begins with a hello"),
        ([hello, b"m"], "a link begins with a hello"),
        ([hello, b"hnot json"], "a note cannot be understood"),
        ([hello, b"a{}"], "a node asks no questions"),
        ([hello, b"h", b"bnot json"], "a note cannot be understood"),
        ([hello, b"h", b"a{}"], "a node sends messages and heartbeats only"),
        ([hello, b"h", b"?"], "there is no such kind of frame"),
        ([who("admin"), b"h"], "a hello must name a node"),
        ([who("admin"), b"a[]"], "a note cannot be understood"),
        ([who("admin"), b'a{"what":"refuse"}'], "not this one"),
    ):
        raw = tree.raw()
        raw.socket.sendall(MAGIC)
        raw.send(*sent)
        found = raw.read()
        if found is not None and found[0] == b"r":
            found = raw.read()
        assert found is not None and found[0] == b"x" and found[1]["what"] == why, (sent, found)
        assert raw.read() is None
    for length in (b"\xff" * 5, b"\xff\xff\xff\xff\x7fm"):
        raw = tree.raw()
        raw.socket.sendall(MAGIC + b"".join(frame(hello)) + length)
        found = raw.read()
        assert found is not None and found[0] == b"x", found
    assert "Traceback" not in caplog.text
    link.send(b"fine")
    until(lambda: len(heard) == 1)
    assert tree.server.links() == {"a"}


def issue(folder: Path, name: str, authority: str, dates: tuple[str, str] | None = None) -> None:
    """A certificate for this host, signed by an authority or by itself."""
    new = f"req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key"
    if name == authority:
        openssl(folder, f"{new} -x509 -days 2 -subj /CN={name} -out {name}.pem")
        return
    openssl(folder, f"{new} -subj /CN={name} -out {name}.csr")
    (folder / "conf").write_text(CONF)
    (folder / "index").write_text("")
    valid = f"-startdate {dates[0]} -enddate {dates[1]}" if dates else "-days 2"
    signed = f"-cert {authority}.pem -keyfile {authority}.key -in {name}.csr -out {name}.pem"
    openssl(folder, f"ca -batch -notext -config conf -extensions extra {valid} {signed}")


def openssl(folder: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Security]:
    """Makes the security of a holder of a certificate that trusts an authority."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    folder = tmp_path_factory.mktemp("keys")
    for name, authority in (("ours", "ours"), ("theirs", "theirs"), ("a", "ours"), ("b", "theirs")):
        issue(folder, name, authority)
    issue(folder, "old", "ours", ("20200101000000Z", "20200201000000Z"))
    issue(folder, "early", "ours", ("20900101000000Z", "20910101000000Z"))

    def security(name: str | None, trusts: str | None, **more: Any) -> Security:
        def path(file: str | None) -> str | None:
            return None if file is None else str(folder / file)

        certificate, key = (f"{name}.pem", f"{name}.key") if name else (None, None)
        authority = None if trusts is None else f"{trusts}.pem"
        given = {"certificate": certificate, "key": key, "authority": authority}
        return Security(**{part: path(file) for part, file in given.items()}, **more)

    return security


def test_tls(tree: Tree, keys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.serve(keys("a", None))
    link, heard = tree.link("a", keys(None, "ours"))
    link.beat(note({"at": 1}))
    until(lambda: heard == [{"ack": 1}])
    for security, why in (
        (keys(None, "theirs"), "certificate is not one of the authority's"),
        (Security(), "this node speaks TLS only"),
    ):
        with pytest.raises(PeerUnreachableError, match=why):
            tree.link("b", security)
        with pytest.raises(PeerUnreachableError, match=why):
            ask(tree.address, "status", {}, security)
    with pytest.raises(
        PeerUnreachableError, match="the other side's certificate is for another host"
    ):
        tree.link("b", keys(None, "ours"), address=f"localhost:{tree.server.port}")
    monkeypatch.setattr(certificates, "check_dates", lambda path, pem: None)
    tree.serve(keys("old", None))
    with pytest.raises(PeerUnreachableError, match=r"^the other side's certificate has expired"):
        tree.link("b", keys(None, "ours"))
    tree.serve()
    with pytest.raises(PeerUnreachableError, match=r"^the other side does not speak TLS"):
        tree.link("b", keys(None, "ours"))


def test_mutual_tls(tree: Tree, keys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.serve(keys("a", "ours", mutual=True))
    link, heard = tree.link("a", keys("a", "ours", mutual=True))
    monkeypatch.setattr(certificates, "check_dates", lambda path, pem: None)
    for name, why in (
        (None, "the other side asks for a certificate; give one and its key"),
        ("b", "the other side does not know who signed the certificate shown to it"),
        ("old", "the certificate shown to the other side has expired; renew it"),
    ):
        for call in (
            lambda security: tree.link("b", security),
            lambda security: ask(tree.address, "status", {}, security),
        ):
            with pytest.raises(PeerUnreachableError) as error:
                call(keys(name, "ours"))
            assert str(error.value).replace(f" (given: {tree.address})", "").startswith(why)
    link.send(b"still there")
    until(lambda: heard)
    assert tree.server.links() == {"a"}


def test_certificates_are_checked_before_the_start(keys: Any, tmp_path: Path) -> None:
    ours = keys("a", "ours", mutual=True)
    ours.check(serving=True)
    keys(None, "ours").check()
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for security, sentence in (
        (
            Security(certificate="x"),
            "a certificate and its key go together (given: x); add the key",
        ),
        (Security(mutual=True), "mutual TLS lacks a part; add the authority"),
        (keys(None, "ours"), "links over TLS cannot be accepted without a certificate"),
        (keys("none", None), "the certificate cannot be read"),
        (keys("a", "none"), "the authority cannot be read"),
        (Security(authority=str(junk), **pair(ours)), "the authority is not a certificate"),
        (Security(**pair(ours) | {"certificate": str(junk)}), "cannot be used together"),
        (Security(**pair(ours) | {"key": keys("b", None).key}), "cannot be used together"),
        (keys("old", None), "the certificate expired on 2020-02-01 00:00 UTC"),
        (keys("early", None), "the certificate is not valid before 2090-01-01 00:00 UTC"),
        (Security(tokens={"a": "x", "b": "x"}), "two nodes have the same token"),
        (Security(tokens={"a": ""}), "the token of 'a' is not one"),
        (Security(token="x\ny"), "the token of this process is not one"),
    ):
        with pytest.raises(SecurityError) as error:
            security.check(serving=True)
        assert sentence in str(error.value)
        with pytest.raises(SecurityError):
            Server(f"{HOST}:0", None, security).start()


def pair(security: Security) -> dict[str, Any]:
    return {"certificate": security.certificate, "key": security.key}


LOOPBACK = ("127.0.0.1", "127.9.8.7", "127.1", "[::1]", "localhost", "[::ffff:127.0.0.1]")
ELSEWHERE = ("0.0.0.0", "0", "[::]", "10.0.0.5", "192.0.2.7", "[2001:db8::1]", "nowhere.invalid")


def listening(host: str, **options: Any) -> dict[str, Any]:
    """A job file whose root listens there."""
    source = {"type": "generator", "events": 10}
    query = {"name": "n", "select": ["count(*)"], "window": "tumbling(1s)"}
    root = {"id": "root", "listen": f"{host}:7401"}
    nodes = [root, {"id": "a", "parent": "root", "source": source}]
    return {"queries": [query], "nodes": nodes, **options}


def test_without_security_nodes_listen_at_loopback_addresses_only(keys: Any) -> None:
    whole = keys("a", None, tokens={"a": "secret"})
    for host in LOOPBACK:
        load_job(listening(host))
        check_listening(f"{host}:0", None)
    for host in ELSEWHERE:
        for security, lacks in (
            (None, "a certificate and tokens"),
            (Security(tokens={"a": "secret"}), "a certificate"),
            (keys("a", None), "tokens"),
            (keys("a", "ours", mutual=True), "tokens"),
        ):
            said = f"a node that others than this machine can reach needs {lacks} (given: listen: "
            with pytest.raises(JobError) as error:
                load_job(listening(host, security=security and security.model_dump()))
            assert str(error.value).startswith(f"{said}{host}:7401); listen at 127.0.0.1, add ")
        load_job(listening(host, security=whole.model_dump()))
        load_job(listening(host, security="none"))
        load_job(listening(host, security={"token": "secret", "authority": "ours.pem"}))


def test_a_server_decides_by_the_addresses_it_listens_at(
    keys: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for security in (None, Security(tokens={"a": "x"}), keys("a", None), keys("a", "ours")):
        with pytest.raises(JobError, match="others than this machine can reach"):
            Server("0.0.0.0:0", Recorder(), security).start()
    with Server("0.0.0.0:0", Recorder(), keys("a", None, tokens={"a": "x"})):
        assert caplog.text == ""
    for _ in range(2):
        caplog.clear()
        with Server("0.0.0.0:0", Recorder(), Security.model_validate("none")) as server:
            assert ask(f"{HOST}:{server.port}", "status", {}) == {"status": {}}
        said = "security is none: whoever reaches 0.0.0.0:0 may read, change and stop this job"
        assert [one.getMessage() for one in caplog.records] == [said]
        assert caplog.records[0].levelno == logging.WARNING
    # A name is what it stands for, and may stand for several addresses.
    known = socket.getaddrinfo
    both = [(socket.AF_INET, 1, 6, "", (HOST, 0)), (socket.AF_INET, 1, 6, "", ("10.0.0.5", 0))]
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: both if host == "two" else known(host, *a, **k)
    )
    with pytest.raises(JobError, match="others than this machine can reach"):
        Server("two:0", Recorder()).start()


def test_security_in_a_job_file() -> None:
    assert load_job(listening(HOST)).security is None
    for wrong, sentence in (
        ("off", "security is 'off'); it should be a mapping, or the word none"),
        ({"exposed": True}, "no such key in the job file (given: security.exposed)"),
    ):
        with pytest.raises(JobError) as error:
            load_job(listening(HOST, security=wrong))
        assert sentence in str(error.value)
    shown = job_schema()["$defs"]["Security"]["anyOf"]
    assert shown[1] == {"const": "none"} and "tokens" in shown[0]["properties"]


def test_a_node_shows_the_token_that_is_kept_for_it(tree: Tree) -> None:
    all_tokens = Security(tokens={"a": "secret-a", "b": "secret-b", "admin": "root"})
    tree.serve(all_tokens)
    tree.link("a", all_tokens)
    assert ask(tree.address, "status", {}, all_tokens) == {"status": {}}
    with pytest.raises(RefusedError, match="the token shown is another's"):
        tree.link("a", all_tokens.model_copy(update={"token": "secret-b"}))
    assert tree.server.links() == {"a"}


def descriptors(server: Server) -> int:
    """The connections that a server holds. Other descriptors of this process come and go with what
    other tests have left behind."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it is gone, or no socket
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as one:
                    held += one.family == socket.AF_INET and one.getsockname()[1] == server.port
    return held


class Watch:
    """The memory of this process at its highest."""

    def __init__(self) -> None:
        self.begun = self._memory()
        self.most = self.begun
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, self._memory())

    def _memory(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def grown(self) -> int:
        """By how many bytes the memory has been more than at first."""
        self._over.set()
        self._thread.join()
        return self.most - self.begun


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("announced", ["who", "hello", "question", "nothing"])
def test_what_a_stranger_sends_is_bounded(
    tree: Tree, keys: Any, announced: str, secure: bool
) -> None:
    """Hundreds of megabytes: before a token is shown, next to nothing is kept of them."""
    most = SENT
    tree.serve(keys("a", None, tokens={"a": "x"}) if secure else Security(tokens={"a": "x"}))
    raw = socket.create_connection((HOST, tree.server.port), timeout=PATIENCE)
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        raw = context.wrap_socket(raw)
    head = frame(bytes(most))[0]
    begin = {"who": MAGIC + head + b"w", "hello": MAGIC + head + b"h", "nothing": b""}
    asks = MAGIC + b"".join(frame(who("admin", token="guess"))) + head + b"a"
    piece, sent, watch = bytes(1 << 20), 0, Watch()
    with raw, contextlib.suppress(OSError):
        raw.sendall(begin.get(announced, asks))
        while sent < most:
            raw.sendall(piece)
            sent += len(piece)
    assert sent < most and watch.grown() < KEPT
    assert tree.handler.seen == []


def test_many_silent_strangers_hold_neither_threads_nor_places(tree: Tree, keys: Any) -> None:
    security = keys("a", "ours", tokens={"a": "x", "admin": "y"})
    server = tree.serve(security, stranger_seconds=3.0, strangers=16)
    link, heard = tree.link("a", security)
    threads, held = threading.active_count(), descriptors(server)
    openings = (b"", MAGIC, MAGIC + b"\x20w{", b"\x16\x03\x01\x02\x00\x01")
    watch, strangers = Watch(), []
    for number in range(800):
        one = socket.create_connection((HOST, tree.server.port), timeout=PATIENCE)
        with contextlib.suppress(OSError):  # it may have been turned away already
            one.sendall(openings[number % len(openings)])
        strangers.append(one)
    assert threading.active_count() <= threads + 1
    until(lambda: descriptors(server) <= held + 16)
    assert watch.grown() < 16 << 20
    assert ask(tree.address, "status", {}, security) == {"status": {}}
    link.beat(note({"at": 1}))
    until(lambda: heard == [{"ack": 1}])
    begun = time.monotonic()
    for one in strangers:
        with contextlib.suppress(ConnectionResetError):
            while one.recv(4096):
                pass
        one.close()
    assert time.monotonic() - begun < 60
    until(lambda: descriptors(server) <= held)


def test_a_stranger_has_ten_seconds_by_default_and_slow_ones_too(tree: Tree) -> None:
    assert Limits().stranger_seconds == 10 and Limits().stranger_bytes <= 1 << 20
    assert Limits().strangers <= 64
    tree.serve(stranger_seconds=0.5)
    raw, long = tree.raw(), MAGIC + b"".join(frame(who("slow" * 1000)))
    sent = 0
    with contextlib.suppress(OSError):
        for byte in long:
            raw.socket.sendall(bytes([byte]))
            sent += 1
            time.sleep(0.05)
    found = raw.read()
    assert sent < len(long) / 2, "it takes minutes to say that much"
    assert found is None or found[1]["what"] == "a peer did not say who it is"


def test_a_flood_of_hellos_leaves_nothing_behind(tree: Tree) -> None:
    """Without tokens anybody may say hello: who is refused must not be remembered."""
    server = tree.serve(pending=8)
    for number in range(300):
        raw = tree.raw()
        raw.socket.sendall(MAGIC)
        raw.send(who(f"n{number}"), b'h{"unwanted":true}')
        found = raw.read()
        assert found is None or found[0] == b"x"
        raw.close()
    until(lambda: not server._slots)
    # Guests that say who they are and then nothing make room for others.
    silent = [tree.raw() for _ in range(50)]
    for number, one in enumerate(silent):
        with contextlib.suppress(OSError):
            one.socket.sendall(MAGIC)
            one.send(who(f"s{number}"))
    link, heard = tree.link("a")
    link.beat(note({"at": 1}))
    until(lambda: heard == [{"ack": 1}])


def test_the_log_does_not_grow_with_strangers(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    tree.serve(Security(tokens={"a": "x"}))
    begun = time.monotonic()
    for _ in range(200):
        with pytest.raises(RefusedError):
            ask(tree.address, "status", {}, Security(token="guess"))
    # Twenty at once, and then one in ten seconds.
    assert 1 <= len(caplog.records) <= 30 + (time.monotonic() - begun) / 10


def test_messages_of_many_nodes_share_the_memory_for_receiving(tree: Tree) -> None:
    """Each of eight nodes sends 8 MB at once; there is room for 10 MB."""
    tree.serve(receiving=10 << 20)
    busy, most, lock = 0, 0, threading.Lock()

    def message(node: str, body: bytes) -> bytes:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.05)
        with lock:
            busy -= 1
        return note({"ack": len(body)})

    tree.handler.message = message
    links = [tree.link(f"n{number}") for number in range(8)]
    body = bytes(8 << 20)
    sending = [threading.Thread(target=link.send, args=(body,)) for link, _ in links]
    for one in sending:
        one.start()
    until(lambda: all(heard == [{"ack": len(body)}] for _, heard in links))
    assert most == 1
    for one in sending:
        one.join()


def test_a_frame_that_stops_half_way_ends_its_link(tree: Tree) -> None:
    tree.serve(stall_seconds=0.3)
    other, heard = tree.link("other")
    raw = tree.raw()
    raw.socket.sendall(MAGIC)
    raw.send(who("slow"), b"h")
    assert raw.read() == (b"r", welcome("slow"))
    time.sleep(0.5)  # between frames a link may be silent
    raw.socket.sendall(frame(b"m" + bytes(1000))[0] + b"m")
    found = raw.read()
    assert found is not None and found[1]["what"] == "nothing came in time"
    other.send(b"fine")
    until(lambda: heard)


class Remains:
    """The peers and the TLS states that a server has made, for as long as they are there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self._there: weakref.WeakSet[Any] = weakref.WeakSet()
        monkeypatch.setattr("catchment.transport.server.Peer", self._noted(Peer))
        monkeypatch.setattr("catchment.transport.peer.Tls", self._noted(Tls))

    def _noted(self, kind: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            one = kind(*given, **named)
            self._there.add(one)
            self.made += 1
            return one

        return made

    def __len__(self) -> int:
        return len(self._there)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: what nobody refers to is freed at once, and nothing else."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def admitted(tree: Tree, security: Security) -> bool:
    """Whether a node and a question get in: a stranger has half a second, of a busy machine too."""
    try:
        tree.link("a", security)[0].close()
        return ask(tree.address, "status", {}, security) == {"status": {}}
    except PeerUnreachableError:
        return False


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_whoever_has_gone_leaves_no_memory_behind(
    tree: Tree, keys: Any, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    """Collections of the oldest garbage are minutes apart: megabytes of a peer must not wait."""
    remains, linger = Remains(monkeypatch), struct.pack("ii", 1, 0)
    monkeypatch.setattr("catchment.transport.peer.LINGER", 0.2)
    tokens = {name: f"of-{name}" for name in ("a", "b", "admin")}
    security = keys("a", "ours", tokens=tokens) if secure else Security(tokens=tokens)
    tree.serve(security, stranger_seconds=0.5, strangers=8, pending=8, stall_seconds=0.5)

    def connected() -> socket.socket:
        made = socket.create_connection((HOST, tree.server.port), timeout=PATIENCE)
        if not secure:
            return made
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(made)

    known = MAGIC + b"".join(frame(who("b", token="of-b")))
    half = frame(bytes(1 << 20))[0]
    openings = [
        b"",
        MAGIC,
        b"GET / HTTP/1.1\r\n\r\n",
        MAGIC + b"".join(frame(who("b", token="guess"))),
        known,
        known + half + b"m" + bytes(1 << 19),
        known + half + b"h" + bytes(1 << 19),
        known + b"".join(frame(b'h{"unwanted":true}')),
        known + b"".join(frame(b"h{") + frame(b"b{}")),
        known + b"".join(frame(b"h{}") + frame(b"mrefuse")),
        known + b"".join(frame(b"h{}")) + half + b"m" + bytes(1 << 19),
        known + b"".join(frame(b'a{"what":"status"}')),
    ]
    with uncollected():
        for opening, leaves in itertools.product(openings, ("waits", "goes", "resets")):
            with contextlib.suppress(OSError), connected() as one:
                one.sendall(opening)
                if leaves == "waits":
                    while one.recv(65536):
                        pass
                elif leaves == "resets":
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if secure:
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(9999)):
                with socket.create_connection((HOST, tree.server.port), timeout=PATIENCE) as one:
                    one.sendall(data)
        flood = [connected() for _ in range(20)]
        for one in flood:
            one.close()
        until(lambda: admitted(tree, security))
        assert remains.made > 50
        until(lambda: len(remains) == 0)


def test_who_was_pushed_out_is_not_waited_for(tree: Tree) -> None:
    """Many say hello as one node, while the handler is busy: the handler is asked for few."""
    server, begun, free = tree.serve(pending=4), threading.Event(), threading.Event()
    asked: list[str] = []

    def hello(node: str, note: bytes) -> bytes:
        asked.append(node)
        begun.set()
        free.wait(PATIENCE)
        return b"{}"

    tree.handler.hello = hello  # type: ignore[method-assign]
    staying = set()
    for _ in range(40):
        raw = tree.raw()
        raw.socket.sendall(MAGIC)
        raw.send(who("b"), b"h{}")
        staying.add(raw.socket)
    assert begun.wait(PATIENCE)

    def only_four_stay() -> bool:
        staying.difference_update([one for one in staying if until_ended(one, 0)])
        return len(staying) == 4

    until(only_four_stay)  # the others may be waiting to be accepted on a busy machine
    assert (server.capacities()[0].used, server.capacities()[1].used) == (0, 4)
    free.set()
    link, _ = tree.link("b")
    assert not link.closed
    assert len(asked) <= 2 * (1 + 4 + 1), "a node may say hello again where the machine is slow"


def test_silent_strangers_push_out_nobody_who_makes_a_handshake(tree: Tree, keys: Any) -> None:
    """A handshake takes a round trip, in which hundreds may connect from the same address."""
    security = keys("a", "ours", tokens={"a": "x"})
    server = tree.serve(security, strangers=8)
    with socket.create_connection((HOST, server.port), timeout=20) as one:
        tls = Tls(security.client_context(), host=HOST)
        one.sendall(tls.outgoing())
        data = one.recv(65536)
        for number in range(60):
            raw = tree.raw()
            with contextlib.suppress(OSError):  # it may have been pushed out already
                raw.socket.sendall(b"\x16\x03\x01\x02"[: number % 5])
        until(lambda: server.capacities()[0].used == 8)
        tls.receive(data)
        assert tls.ready
        one.sendall(tls.outgoing())
        said = MAGIC + b"".join(frame(who("a", token="x")) + frame(b"h{}"))
        one.sendall(tls.send(said))
        frames = Frames()
        while (found := frames.next()) is None and (data := one.recv(65536)):
            frames.feed(tls.receive(data))
    assert found is not None and (found[0], read(found[1])) == (b"r", welcome("a"))


def test_a_hello_may_take_so_long_and_no_longer(tree: Tree) -> None:
    """Byte by byte it would keep its place, and its share of the memory for receiving, for days."""
    server = tree.serve(stall_seconds=0.5)
    raw = tree.raw()
    raw.socket.sendall(MAGIC)
    raw.send(who("slow"))
    raw.socket.sendall(frame(b"h" + bytes(100_000))[0] + b"h")
    begun = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() < begun + 10 and not until_ended(raw.socket, 0.05):
            raw.socket.sendall(b" ")
    found = raw.read()
    assert found is None or found[1]["what"] == "nothing came in time"
    assert time.monotonic() < begun + 5
    until(lambda: server.capacities()[2].used == 0)


def until_ended(connection: socket.socket, seconds: float) -> bool:
    """Whether anything can be read within so many seconds: an answer, or the end."""
    return bool(select.select([connection], [], [], seconds)[0])


def test_what_waits_for_a_worker_is_gone_with_who_sent_it(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the handler is busy, hellos come and are pushed out: they do not wait for it."""
    remains, free, asked = Remains(monkeypatch), threading.Event(), list[str]()
    server = tree.serve(pending=4, workers=1)

    def hello(node: str, note: bytes) -> bytes:
        asked.append(node)
        free.wait(20)
        return b"{}"

    tree.handler.hello = hello  # type: ignore[method-assign]
    with uncollected():
        for number in range(60):
            raw = tree.raw()
            raw.socket.sendall(MAGIC)
            name = f"n{number}" if number % 2 else "admin"
            raw.send(who(name), (b"h{" if number % 2 else b"a{") + b" " * 60_000 + b"}")
        until(lambda: remains.made == 60 and server.capacities()[0].used == 0)
        until(lambda: len(remains) <= 4 + 1)
        free.set()
        until(lambda: server.capacities()[1].used == 0)
    assert len(asked) <= 4 + 1


def test_what_waits_for_memory_is_gone_with_who_announced_it(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node has all the memory for receiving. Others announce much meanwhile, and go."""
    remains = Remains(monkeypatch)
    server = tree.serve(pending=4, receiving=1 << 20)
    link, heard = tree.link("real")
    holder = tree.raw()
    holder.socket.sendall(MAGIC)
    holder.send(who("holder"), b"h{}")
    assert holder.read() == (b"r", welcome("holder"))
    holder.socket.sendall(frame(bytes(1 << 20))[0] + b"m")
    until(lambda: server.capacities()[2].used == 1 << 20)
    others = []
    with uncollected():
        for number in range(60):
            raw = tree.raw()
            raw.socket.sendall(MAGIC)
            raw.send(who(f"n{number}"))
            raw.socket.sendall(frame(bytes(200_000))[0] + b"h")
            others.append(raw)
        until(lambda: remains.made == 62 and server.capacities()[0].used == 0)
        until(lambda: len(remains) <= 2 + 4)
    for raw in others:
        raw.close()
    holder.close()
    link.send(bytes(900_000))
    until(lambda: heard)
    until(lambda: server.capacities()[2].used == 0)


def test_a_frame_that_is_out_of_turn_is_refused_before_it_comes(tree: Tree) -> None:
    """A peer that has shown its token may say hello, and no message of 100 MB before that."""
    tree.serve(Security(tokens={"b": "of-b"}))
    head, watch = frame(bytes(SENT))[0], Watch()
    for said, kind, why in (
        ([], b"m", "a link begins with a hello"),
        ([], b"q", "a link begins with a hello"),
        ([b"h{}"], b"h", "a node sends messages and heartbeats only"),
        ([b"h{}"], b"a", "a node sends messages and heartbeats only"),
    ):
        raw = tree.raw()
        raw.socket.sendall(MAGIC)
        raw.send(who("b", token="of-b"), *said)
        assert not said or (raw.read() or ("", {}))[0] == b"r"
        raw.socket.sendall(head + kind)
        found = raw.read()
        assert found is not None and found[1]["what"] == why
        with contextlib.suppress(OSError):
            for _ in range(100):
                raw.socket.sendall(bytes(1 << 20))
        raw.close()
    assert watch.grown() < KEPT


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", MAGIC])
def test_strangers_that_reset_their_connections_leave_no_descriptors(
    tree: Tree, sent: bytes
) -> None:
    server = tree.serve(stranger_seconds=0.1)
    held = descriptors(server)
    for number in range(20):
        raw = socket.create_connection((HOST, tree.server.port), timeout=PATIENCE)
        raw.sendall(sent)
        if number % 2:
            with contextlib.suppress(OSError):
                raw.recv(1)  # it has been turned away
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.close()
    until(lambda: descriptors(server) <= held)


def test_what_the_document_on_security_shows_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    text = (Path(__file__).parent.parent / "docs" / "security.md").read_text()
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    root, edge = (
        load_job(listening("0.0.0.0", **yaml.safe_load(block))).security
        for block in re.findall(r"```yaml\n(security:.*?)```", text, re.DOTALL)
    )
    assert root is not None and edge is not None
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-e", "-c", commands], check=True, capture_output=True)
    with Server("0.0.0.0:0", Recorder(), root) as server:
        link = ParentLink(f"{HOST}:{server.port}", "edge-1", lambda: EMPTY, lambda _: None, edge)
        assert read(link.open())["welcome"] == "edge-1"
        link.close()
        assert ask(f"{HOST}:{server.port}", "status", {}, root) == {"status": {}}
    shown = {field.name: field.default for field in dataclasses.fields(Limits)}
    for figure, name in (
        (48, "strangers"),
        (48, "pending"),
        (64 << 10, "stranger_bytes"),
        (8 << 20, "note"),
        (256 << 20, "message"),
        (256 << 20, "receiving"),
        (1 << 20, "waiting"),
        (8, "workers"),
        (10, "stranger_seconds"),
        (30, "stall_seconds"),
    ):
        assert shown.pop(name) == figure, name
    assert not shown
