"""A loopback TCP proxy that counts what passes, and that can be a bad network."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from catchment.measure.ports import free_port

CHUNK = 1 << 16


class Proxy:
    """Passes bytes between its clients and a target, with the faults that a test asks for.

    `up` counts bytes towards the target, `down` those coming back: payload of TCP only. The
    faults last until `mend()`. Bytes are never reordered or changed: below TCP nothing is. Of what
    goes up, the first `record` bytes of each connection are kept in `recorded`.
    """

    def __init__(self, target: tuple[str, int], record: int = 0) -> None:
        self.target = target
        self.up = 0
        self.down = 0
        self.recorded: list[bytearray] = []
        self._record = record
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._delay = 0.0
        self._rate = 0.0
        self._held = False
        self._left: int | None = None
        self._pairs: list[_Pair] = []
        self._listener: socket.socket | None = _listen(free_port())
        self.port: int = self._listener.getsockname()[1]
        self._accept(self._listener)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Closes every connection, and refuses new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                # A thread waiting in accept() keeps a closed socket alive; this wakes it.
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._drop()

    def mend(self) -> None:
        """Ends every fault; what was held back passes."""
        with self._changed:
            self._delay, self._rate, self._held, self._left = 0.0, 0.0, False, None
            self._changed.notify_all()
            if self._listener is None:
                self._listener = _listen(self.port)
                self._accept(self._listener)

    def delay(self, seconds: float) -> None:
        """Holds each piece back that long before it passes, both ways."""
        with self._changed:
            self._delay = seconds

    def crawl(self, bytes_per_second: float) -> None:
        """Lets each direction of a connection pass no more than that."""
        with self._changed:
            self._rate = bytes_per_second

    def hold(self) -> None:
        """Lets nothing pass and closes nothing, as when a cable is pulled."""
        with self._changed:
            self._held = True

    def sever(self, after_bytes: int) -> None:
        """Cuts the connection that carries the given number of bytes up from now, right there.

        New connections are accepted.
        """
        with self._changed:
            self._left = after_bytes

    def close(self) -> None:
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self) -> None:
        with self._changed:
            pairs, self._pairs = self._pairs, []
            for pair in pairs:
                pair.broken = True
            self._changed.notify_all()
        for pair in pairs:
            pair.close()

    def _accept(self, listener: socket.socket) -> None:
        threading.Thread(target=self._accepting, args=(listener,), daemon=True).start()

    def _accepting(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, timeout=10)
            except OSError:
                _reset(near)
                continue
            far.settimeout(None)
            pair = _Pair(near, far)
            with self._lock:
                if self._listener is not listener:
                    pair.close()
                    return
                self._pairs.append(pair)
                if self._record:
                    self.recorded.append(pair.sent)
            for upward in (True, False):
                threading.Thread(target=self._pump, args=(pair, upward), daemon=True).start()

    def _pump(self, pair: _Pair, upward: bool) -> None:
        source, drain = (pair.near, pair.far) if upward else (pair.far, pair.near)
        try:
            while data := source.recv(CHUNK):
                if upward:
                    pair.sent += data[: self._record - len(pair.sent)]
                if not self._pass(pair, drain, data, upward):
                    break
            else:
                drain.shutdown(socket.SHUT_WR)
                if not pair.finish():
                    return
        except OSError:
            pass
        self._forget(pair)

    def _pass(self, pair: _Pair, drain: socket.socket, data: bytes, upward: bool) -> bool:
        """Forwards some bytes as the faults say; False when the connection has ended."""
        at = 0
        with self._changed:
            self._changed.wait_for(lambda: pair.broken, self._delay)
        while at < len(data) and not pair.broken:
            with self._changed:
                self._changed.wait_for(lambda: pair.broken or not self._held)
                if pair.broken:
                    return False
                rate = self._rate
                # A tenth of a second's worth at a time, so that a slow line is slow evenly.
                step = max(1, int(rate / 10)) if rate else len(data)
                piece = data[at : at + step]
                if upward and self._left is not None:
                    piece = piece[: self._left]
                    self._left -= len(piece)
                    if self._left == 0:
                        pair.broken, self._left = True, None
                self.up += len(piece) if upward else 0
                self.down += 0 if upward else len(piece)
            drain.sendall(piece)
            at += len(piece)
            if rate:
                time.sleep(len(piece) / rate)
        return not pair.broken

    def _forget(self, pair: _Pair) -> None:
        with self._changed:
            pair.broken = True
            if pair in self._pairs:
                self._pairs.remove(pair)
            self._changed.notify_all()
        pair.close()


class _Pair:
    """The two sockets of one connection."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self.broken = False
        self.sent = bytearray()
        """The first bytes that went up, as far as they are recorded."""
        self._open = 2
        self._lock = threading.Lock()
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> bool:
        """Notes the end of one direction; whether it was the second."""
        with self._lock:
            self._open -= 1
            return self._open == 0

    def close(self) -> None:
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def _reset(end: socket.socket) -> None:
    """Closes a connection with a reset, so that the client sees that there is no server."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
