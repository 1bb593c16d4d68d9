"""Cuts a stream of bytes into frames, and makes frames; does no input or output.

    frame  =  length, as a varint   kind, one byte   body
    stream =  MAGIC   frame   frame   ...              from the side that connects
              frame   frame   ...                      from the side that listens

The length is that of kind and body. A varint has seven bits in a byte, the lowest first, and the
highest bit set in all bytes but the last; so a frame costs two bytes besides its body while that is
shorter than 127. Kind and length are judged as soon as they are there, before the body is.
"""

from __future__ import annotations

from collections.abc import Callable

from catchment.errors import RefusedError

MAGIC = b"catchment\n"
LONGEST = 5
"""Bytes of a varint that are taken."""

Judge = Callable[[bytes, int], None]
"""Is given the kind of a frame and the length of its body; raises if it may not come."""


def anything(kind: bytes, length: int) -> None:
    """Judges nothing: any frame may come."""


def frame(packed: bytes) -> tuple[bytes, bytes]:
    """What goes before a kind and body, and these: two parts, since a body may be large.

    >>> frame(b"b{}")
    (b'\\x03', b'b{}')
    """
    length, head = len(packed), bytearray()
    while length > 0x7F:
        head.append(0x80 | length & 0x7F)
        length >>= 7
    head.append(length)
    return bytes(head), packed


class Frames:
    """The frames of a stream, as its bytes come in.

    >>> frames = Frames()
    >>> frames.feed(b"\\x03b{"), frames.next()
    (None, None)
    >>> frames.feed(b"}\\x01q"), frames.next(), frames.next(), frames.next()
    (None, (b'b', b'{}'), (b'q', b''), None)
    """

    def __init__(self, magic: bytes = b"") -> None:
        self._magic = magic
        self._held = bytearray()
        self._length: int | None = None
        """The length of kind and body of the frame being received, once it is known."""

    def feed(self, data: bytes) -> None:
        self._held += data

    @property
    def begun(self) -> bool:
        """Whether some, but not all, of a frame is there."""
        return bool(self._held) or self._length is not None

    @property
    def announced(self) -> int:
        """How long the frame that is under way will be; 0 while that is not known."""
        return self._length or 0

    def next(self, judge: Judge = anything) -> tuple[bytes, bytes] | None:
        """Kind and body of the next frame; None until all of it is there.

        The judge is not kept: it may belong to whoever keeps this, and neither would be freed
        before the next garbage collection, nor the bytes that are held here.
        """
        if self._magic and not self._begin():
            return None
        if self._length is None and not self._head(judge):
            return None
        length = self._length
        if length is None or len(self._held) < length:
            return None
        with memoryview(self._held) as held:
            kind, body = bytes(held[:1]), bytes(held[1:length])
        del self._held[:length]
        self._length = None
        return kind, body

    def _begin(self) -> bool:
        """Whether the stream has begun as it must."""
        seen = bytes(self._held[: len(self._magic)])
        if not self._magic.startswith(seen):
            raise RefusedError("this is not the protocol of Catchment", given=seen)
        if len(seen) < len(self._magic):
            return False
        del self._held[: len(self._magic)]
        self._magic = b""
        return True

    def _head(self, judge: Judge) -> bool:
        """Whether length and kind of the next frame are there, and may come."""
        length = 0
        for at, byte in enumerate(self._held[:LONGEST]):
            length |= (byte & 0x7F) << 7 * at
            if byte < 0x80:
                if not length:
                    raise RefusedError("a frame says nothing")
                if len(self._held) < at + 2:
                    return False
                judge(bytes(self._held[at + 1 : at + 2]), length - 1)
                del self._held[: at + 1]
                self._length = length
                return True
        if len(self._held) >= LONGEST:
            raise RefusedError(
                "the length of a frame is not one", given=bytes(self._held[:LONGEST])
            )
        return False


def bounded(length: int, limit: int) -> None:
    """Refuses a body that is longer than allowed."""
    if length > limit:
        raise RefusedError(
            f"a message is larger than the {limit} bytes that are taken here",
            given=f"{length} bytes",
            hint="send it in parts, or raise the limit",
        )
