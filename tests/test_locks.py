"""One process at a time in a folder: real processes that are killed, also over an object store."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from catchment.durable.folder import Folder
from catchment.durable.lock import Lease, Lock, hold
from catchment.errors import StateError
from catchment.measure.ports import free_port
from object_store import object_store
from patience import PATIENCE, wait_for

pytestmark = pytest.mark.slow

HOLDER = """
import sys, time
from catchment.durable.folder import Folder
from catchment.durable.lock import hold

lock = hold(Folder(sys.argv[1]), float(sys.argv[2]), 0.1)
print("held", flush=True)
time.sleep(1000)
"""


@contextmanager
def holder(uri: str, lease: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a folder."""
    command = [sys.executable, "-c", HOLDER, uri, str(lease)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "held\n" in iter(process.stdout.readline, "")
        yield process
    finally:
        process.kill()
        process.communicate()


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_lock_says_who_has_it_and_dies_with_its_process(tmp_path: Path) -> None:
    home = Folder(str(tmp_path / "new" / "home"))
    with holder(home.uri) as process:
        with pytest.raises(StateError) as caught:
            hold(home)
        text = str(caught.value)
        assert text.startswith(
            f"another process works in this folder (given: {home.uri}: process {process.pid} on "
            f"{socket.gethostname()}, since 20"
        )
        assert text.endswith(
            "it ends when that process does; to run another job, give it a folder of its own"
        )
        killed(process)
        with hold(home) as lock:
            lock.check()
        with pytest.raises(StateError, match="not held any more"):
            lock.check()
    assert stat.S_IMODE((tmp_path / "new" / "home" / "lock").stat().st_mode) == 0o600


def test_a_lock_holds_in_one_process_too(tmp_path: Path) -> None:
    home = Folder(str(tmp_path))
    with hold(home), pytest.raises(StateError, match=f"process {os.getpid()} "):
        hold(home)
    hold(home).release()


def test_a_lock_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"the folder cannot be locked .*(not a dir|file exists)"):
        hold(Folder(str(tmp_path / "file" / "home")))


def test_children_of_a_process_do_not_inherit_its_lock(tmp_path: Path) -> None:
    with holder(str(tmp_path)) as process:
        killed(process)
    lock = hold(Folder(str(tmp_path)))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        lock.release()
        hold(Folder(str(tmp_path))).release()
    finally:
        child.kill()
        child.wait()


LEASE = 6.0
"""Seconds of a lease that is renewed, runs out, and is refused meanwhile, on a busy machine too."""


def expires(home: Folder) -> float:
    """When the lease of a folder ends."""
    held = home.read("lock")
    assert held is not None
    return float(json.loads(held)["expires"])


def test_a_lease_in_a_store_of_objects() -> None:
    """Of two processes one has it; when that one is killed, the other gets it once it has ended."""
    with object_store() as uri, holder(uri, LEASE) as process:
        home = Folder(uri)
        first = expires(home)
        wait_for(lambda: expires(home) > first)  # it is renewed
        with pytest.raises(StateError) as caught:
            hold(home, LEASE, 0.1)
        assert f"process {process.pid} on {socket.gethostname()}, since 20" in str(caught.value)
        assert "if it is gone, wait until 20" in str(caught.value)
        killed(process)
        with pytest.raises(StateError, match="another process works in this folder"):
            hold(home, LEASE, 0.1)
        wait_for(lambda: time.time() > expires(home))
        with hold(home, LEASE, 0.1) as lock:
            lock.check()
        hold(home, LEASE, 0.1).release()  # it was given back


def test_of_many_that_want_a_lease_at_once_one_gets_it() -> None:
    with object_store() as uri:
        got: list[Lock] = []

        def want() -> None:
            time.sleep(random.random() * 0.05)
            try:
                # Whoever has found nobody must have written before the first reads it back.
                got.append(Lease(Folder(uri), 60, 5.0))
            except StateError as error:
                assert "another process works in this folder" in str(error)  # noqa: PT017

        threads = [threading.Thread(target=want) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1
        got[0].release()


def lost_by(lease: Lease) -> str:
    """What is said of a lease that is not held any more."""
    try:
        lease.check()
    except StateError as error:
        return str(error)
    return ""


def test_a_lease_that_is_lost_is_noticed() -> None:
    with object_store() as uri:
        home = Folder(uri)
        slow = Lease(home, 6.0, 0.0)
        home.write(
            "lock", b'{"owner": "x", "pid": 7, "host": "other", "since": 0, "expires": 1e10}'
        )
        lost = wait_for(lambda: lost_by(slow))
        assert re.search(r"lease of the folder is lost .*process 7 on other", lost)
        slow.release()
        assert home.read("lock") is not None  # it is the other's
        now = [1000.0]
        with pytest.raises(StateError, match="process 7"):
            Lease(home, 60, 0.0, lambda: now[0])
        home.remove("lock")
        asleep = Lease(home, 60, 0.0, lambda: now[0])
        asleep.check()
        now[0] += 61
        with pytest.raises(StateError, match="could not be renewed in time"):
            asleep.check()
        asleep.release()


# -- nodes and jobs -----------------------------------------------------------------------------


def tree(tmp_path: Path) -> Path:
    port = free_port()
    path = tmp_path / "job.yaml"
    source = {"type": "generator", "events": 100000, "pace": 100}
    made: dict[str, Any] = {
        "queries": [{"name": "q", "select": ["count(*)"], "window": "tumbling(1s)"}],
        "checkpoint": str(tmp_path / "state"),
        "sinks": [{"type": "parquet", "path": str(tmp_path / "out")}],
        "nodes": [
            {"id": "root", "listen": f"127.0.0.1:{port}"},
            {"id": "a", "parent": "root", "source": source},
        ],
    }
    path.write_text(json.dumps(made))
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "catchment.cli.main", *words]


def listens(path: Path) -> None:
    """Waits until the root does."""
    host, _, port = json.loads(path.read_text())["nodes"][0]["listen"].partition(":")

    def answers() -> bool:
        with suppress(OSError):
            socket.create_connection((host, int(port)), 10).close()
            return True
        return False

    wait_for(answers)


def test_two_processes_of_one_node(tmp_path: Path) -> None:
    path = tree(tmp_path)
    words = command("node", "root", str(path), "--engine", "embedded")
    first = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        listens(path)
        second = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert second.returncode and "Traceback" not in second.stderr
        said = " ".join(second.stderr.split())
        assert "another process works in this folder" in said and f"process {first.pid} on" in said
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    third = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    listens(path)
    third.send_signal(signal.SIGTERM)
    assert third.wait(PATIENCE) == 0
    home = tmp_path / "state"
    for found in [home, *home.rglob("*")]:
        mode = stat.S_IMODE(found.stat().st_mode)
        assert mode == (0o700 if found.is_dir() else 0o600), found


JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi
touch {started}
exit 1
"""
"""A Java that says its version, and shows that it was started for more."""


def test_a_job_whose_checkpoint_is_held_does_not_start(tmp_path: Path) -> None:
    """The second process says so before it starts Spark."""
    made: dict[str, Any] = {
        "queries": [{"name": "q", "select": ["count(*)"], "window": "tumbling(1s)"}],
        "source": {"type": "generator", "events": 1000},
        "checkpoint": str(tmp_path / "state"),
        "sinks": [{"type": "parquet", "path": str(tmp_path / "out")}],
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(made))
    java, started = tmp_path / "jdk" / "bin" / "java", tmp_path / "started"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(started=started))
    java.chmod(0o755)
    told = os.environ | {"JAVA_HOME": str(tmp_path / "jdk")}
    with holder(str(tmp_path / "state" / "catchment")) as process:
        for trigger in ("available-now", "batch"):
            words = command("run", str(path), "--trigger", trigger)
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=told)
            said = " ".join(done.stderr.split())
            assert done.returncode and "Traceback" not in said
            assert "another process works in this folder" in said
            assert f"process {process.pid} on" in said and not started.exists()
