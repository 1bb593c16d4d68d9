"""A network of Linux namespaces: each process has its own interface, which can be unplugged.

A proxy can hold or cut a connection; only here are packets lost without anybody being told.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType
from typing import Self

from catchment.errors import CatchmentError

_NET = "10.77.0"


def missing_namespaces() -> str | None:
    """Why there can be no namespaces here; None when there can."""
    if shutil.which("ip") is None:
        return "no network namespaces: no ip command (Debian, Ubuntu: apt install iproute2)"
    try:
        with Network(["a"]):
            return None
    except CatchmentError as error:
        return f"no network namespaces: {error}"


class Network:
    """Names that are joined by a bridge, in a namespace of its own that leads nowhere else."""

    def __init__(self, names: list[str]) -> None:
        self._places = {name: number for number, name in enumerate(names, start=1)}
        self._mark = f"ct{os.getpid()}"
        self._hub = f"{self._mark}-hub"

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self._hub)
            _ip("-n", self._hub, "link", "add", "br0", "type", "bridge")
            _ip("-n", self._hub, "link", "set", "br0", "up")
            for name in self._places:
                self._join(name)
        except CatchmentError:
            self.close()
            raise
        return self

    def _join(self, name: str) -> None:
        space, port = self._space(name), self._port(name)
        _ip("netns", "add", space)
        _ip(
            "link",
            "add",
            "eth0",
            "netns",
            space,
            "type",
            "veth",
            "peer",
            "name",
            port,
            "netns",
            self._hub,
        )
        _ip("-n", self._hub, "link", "set", port, "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")

    def _space(self, name: str) -> str:
        return f"{self._mark}-{self._places[name]}"

    def _port(self, name: str) -> str:
        return f"port{self._places[name]}"

    def address(self, name: str) -> str:
        return f"{_NET}.{self._places[name]}"

    def within(self, name: str) -> list[str]:
        """What stands before a command that runs there."""
        return ["ip", "netns", "exec", self._space(name)]

    def unplug(self, name: str) -> None:
        """Loses every packet from and to it, without a word."""
        _ip("-n", self._hub, "link", "set", self._port(name), "down")

    def plug(self, name: str) -> None:
        _ip("-n", self._hub, "link", "set", self._port(name), "up")

    def close(self) -> None:
        for space in (*map(self._space, self._places), self._hub):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise CatchmentError("a namespace cannot be made", given=said[-1], hint="it takes root")
