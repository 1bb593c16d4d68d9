"""PostgreSQL, Mosquitto and Prometheus, from the binaries that Debian's packages put in place."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catchment.measure.ports import HOST, free_port
from servers.daemon import Daemon, Server, ask, run, running

_POSTGRES = Path("/usr/lib/postgresql")
_SBIN = "/usr/sbin"
_USERS = ("postgres", "nobody")
"""Who runs PostgreSQL, which refuses to be run by root: the first there is."""

# CONNECT of MQTT 3.1.1: a clean session, a minute's keep-alive, no name. CONNACK: accepted.
_CONNECT = bytes.fromhex("100c 0004 4d515454 04 02 003c 0000")
_CONNECTED = bytes.fromhex("20020000")

# Saved at every change, but only after it was acknowledged: a kill at once may lose the last one.
_MOSQUITTO = """\
listener {port} {host}
allow_anonymous true
persistence true
persistence_location {data}/
autosave_on_changes true
autosave_interval 1
log_dest stderr
log_type error
log_type warning
log_type notice
"""


# Scrapes itself. Its samples go to a receiver, where one is given.
_PROMETHEUS = """\
global: {{scrape_interval: 1s, external_labels: {{site: here}}}}
scrape_configs:
  - {{job_name: itself, static_configs: [{{targets: ["{host}:{port}"]}}]}}
remote_write: [{remote}]
"""
_REMOTE = """{{url: "{url}", authorization: {{credentials: "{token}"}}, \
queue_config: {{batch_send_deadline: 1s, min_backoff: 100ms, max_backoff: 1s}}}}"""


@dataclass(frozen=True)
class Postgres(Server):
    """A running PostgreSQL; its user owns everything and needs no password."""

    user: str = "postgres"
    database: str = "postgres"

    @property
    def dsn(self) -> str:
        """What libpq and its kin connect to."""
        return f"postgresql://{self.user}@{self.host}:{self.port}/{self.database}"


@dataclass(frozen=True)
class Mosquitto(Server):
    """A running MQTT broker that lets anyone in.

    `stop` keeps everything; `kill` may lose what it acknowledged in the last moment.
    """


@dataclass(frozen=True)
class PrometheusServer(Server):
    """A running Prometheus that scrapes itself and takes remote write."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def missing_postgres() -> str | None:
    """Why there can be no PostgreSQL here; None when there can."""
    if _postgres_binaries() is None:
        return "no PostgreSQL: no binaries (Debian, Ubuntu: apt install postgresql)"
    if os.geteuid() == 0 and (_other_user() is None or shutil.which("setpriv") is None):
        return "no PostgreSQL: root may not run it, and no other user or no setpriv was found"
    return None


def missing_mosquitto() -> str | None:
    """Why there can be no Mosquitto here; None when there can."""
    if _mosquitto_binary() is None:
        return "no Mosquitto: no binary (Debian, Ubuntu: apt install mosquitto)"
    return None


def missing_prometheus() -> str | None:
    """Why there can be no Prometheus here; None when there can."""
    if shutil.which("prometheus") is None:
        return "no Prometheus: no binary (Debian, Ubuntu: apt install prometheus)"
    return None


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """Runs a PostgreSQL whose log, `postgres.log`, is in the folder.

    Its data is elsewhere, and removed at the end: the user who runs it may not reach the folder,
    and the path of a socket must be short.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, log, binaries = free_port(), folder / "postgres.log", _postgres_binaries() or Path()
    home = Path(tempfile.mkdtemp(prefix="catchment-postgres-"))
    try:
        user = _other_user() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(home, user.pw_uid, user.pw_gid)
        data = ["-D", str(home / "data")]
        initdb = [str(binaries / "initdb"), *data, *_INITDB, "--username", Postgres.user]
        run([*_as_user(user), *initdb], log)
        command = [*_as_user(user), str(binaries / "postgres"), *data, *_settings(home, port)]
        # The interrupt does not wait for clients to leave.
        daemon = Daemon(
            "PostgreSQL", command, log, lambda: _is_ready(binaries, port), signal.SIGINT
        )
        with running(Postgres(HOST, port, daemon)) as server:
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def mosquitto(folder: Path) -> Iterator[Mosquitto]:
    """Runs a Mosquitto that keeps its data and its log, `mosquitto.log`, in the folder."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    port, settings = free_port(), folder / "mosquitto.conf"
    # It would change to a user of its own, who may not reach the folder.
    user = "user root\n" if os.geteuid() == 0 else ""
    settings.write_text(_MOSQUITTO.format(host=HOST, port=port, data=data) + user)
    command = [_mosquitto_binary() or "mosquitto", "-c", str(settings)]
    log = folder / "mosquitto.log"
    daemon = Daemon("Mosquitto", command, log, lambda: _accepts(port))
    with running(Mosquitto(HOST, port, daemon)) as server:
        yield server


@contextmanager
def prometheus(folder: Path, url: str | None = None, token: str = "") -> Iterator[PrometheusServer]:
    """Runs a Prometheus that keeps its data and its log, `prometheus.log`, in the folder.

    With a URL it sends all that it scrapes there, and shows the token.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, settings, log = free_port(), folder / "prometheus.yml", folder / "prometheus.log"
    remote = "" if url is None else _REMOTE.format(url=url, token=token)
    settings.write_text(_PROMETHEUS.format(host=HOST, port=port, remote=remote))
    command = [
        shutil.which("prometheus") or "prometheus",
        f"--config.file={settings}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={HOST}:{port}",
        "--web.enable-remote-write-receiver",
    ]
    ready = b"GET /-/ready HTTP/1.0\r\n\r\n"
    daemon = Daemon("Prometheus", command, log, lambda: b" 200 " in ask(port, ready, 15))
    with running(PrometheusServer(HOST, port, daemon)) as server:
        yield server


_INITDB = ("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")


def _settings(home: Path, port: int) -> list[str]:
    pairs = {
        "listen_addresses": HOST,
        "port": port,
        "unix_socket_directories": home,
        "fsync": "off",
        "shared_buffers": "32MB",
    }
    return [word for name, value in pairs.items() for word in ("-c", f"{name}={value}")]


def _postgres_binaries() -> Path | None:
    """The folder of the newest PostgreSQL."""
    found = [path.parent for path in _POSTGRES.glob("*/bin/postgres")]
    if found:
        return max(found, key=lambda path: float(path.parent.name))
    elsewhere = shutil.which("postgres")
    return Path(elsewhere).parent if elsewhere else None


def _mosquitto_binary() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path=_SBIN)


def _other_user() -> pwd.struct_passwd | None:
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next((users[name] for name in _USERS if name in users), None)


def _as_user(user: pwd.struct_passwd | None) -> list[str]:
    if user is None:
        return []
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _is_ready(binaries: Path, port: int) -> bool:
    address = ["-h", HOST, "-p", str(port), "-U", Postgres.user, "-d", Postgres.database]
    command = [str(binaries / "pg_isready"), "-q", *address]
    return subprocess.run(command, capture_output=True).returncode == 0


def _accepts(port: int) -> bool:
    return ask(port, _CONNECT, len(_CONNECTED)) == _CONNECTED
