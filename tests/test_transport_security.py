"""Peers that are not to be trusted: tokens, TLS, certificates, garbage, and far too much of it."""

from __future__ import annotations

import logging
import random
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from catchment.errors import RefusedError
from catchment.transport import Security, SecurityError, Server, UnreachableError, ask, certificates
from catchment.transport.link import connect
from test_transport import HOST, Tree, tree, until

__all__ = ["tree"]

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
    assert tree.handler.seen == [] and tree.server.links() == set()
    tree.link("a", Security(token="secret-a"))
    assert ask(tree.address, "status", {}, Security(token="root")) == {"status": {}}
    assert "secret" not in caplog.text and "secret" not in repr(Security(tokens=tokens))


def test_large_bodies_are_refused(tree: Tree) -> None:
    tree.serve(limit=1000)
    link, heard = tree.link("a", limit=10_000)
    other, _ = tree.link("b")
    with pytest.raises(RefusedError, match=r"larger than the 1000 bytes .* \(given: 1001 bytes\)"):
        link.send(bytes(1001))
    link.send(bytes(1000))
    until(lambda: len(heard) == 1)
    link.limit = 10_000_000
    link.send(bytes(5_000_000))
    until(lambda: link.closed)
    assert isinstance(link.error, RefusedError)
    assert "larger than the 1000 bytes that are taken here (given: 5000000 bytes)" in str(
        link.error
    )
    assert not other.closed and tree.server.links() == {"b"}


def test_garbage_disturbs_nobody(tree: Tree) -> None:
    tree.serve()
    link, heard = tree.link("a")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", random.randbytes(5000), b"PRI * HTTP/2.0\r\n\r\nSM"):
        with socket.create_connection((HOST, tree.server.port)) as raw:
            raw.sendall(garbage)
    frames = (b"", b"h", b"hnot json", b"h[1]", b"m", b"?", b"h" + b"[" * 100_000)
    for frame in frames:
        with connect(tree.address, Security()) as client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b""))
            writer.write_metadata(pa.py_buffer(frame))
            if frame:
                assert reader.read_chunk().app_metadata.to_pybytes().startswith(b"x")
            client.close()
    with connect(tree.address, Security()) as client, pytest.raises(pa.ArrowException):
        list(client.list_flights())
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
    link.beat({"at": 1})
    until(lambda: heard == [{"ack": 1}])
    for security, why in (
        (keys(None, "theirs"), "certificate is not one of the authority's"),
        (Security(), "the connection was lost.*; the other side may want TLS"),
    ):
        with pytest.raises(UnreachableError, match=why):
            tree.link("b", security)
        with pytest.raises(UnreachableError, match=why):
            ask(tree.address, "status", {}, security)
    with pytest.raises(UnreachableError, match="the other side's certificate is for another host"):
        tree.link("b", keys(None, "ours"), address=f"localhost:{tree.server.port}")
    monkeypatch.setattr(certificates, "check_dates", lambda path, pem: None)
    tree.serve(keys("old", None))
    with pytest.raises(UnreachableError, match=r"^the other side's certificate has expired"):
        tree.link("b", keys(None, "ours"))
    tree.serve()
    with pytest.raises(UnreachableError, match=r"^the other side does not speak TLS"):
        tree.link("b", keys(None, "ours"))


def test_mutual_tls(tree: Tree, keys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.serve(keys("a", "ours", mutual=True))
    link, heard = tree.link("a", keys("a", "ours", mutual=True))
    monkeypatch.setattr(certificates, "check_dates", lambda path, pem: None)
    hint = "the other side may not accept this side's certificate"
    for name in (None, "b", "old"):
        for call in (
            lambda security: tree.link("b", security),
            lambda security: ask(tree.address, "status", {}, security),
        ):
            with pytest.raises(UnreachableError) as error:
                call(keys(name, "ours"))
            assert str(error.value) == f"the connection was lost (given: {tree.address}); {hint}"
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
