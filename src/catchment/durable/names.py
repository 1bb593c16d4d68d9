"""Names that users choose, as names of files and folders."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 120
"""Letters of a file name; file systems take 255 bytes, and something may be put around it."""
_PLAIN = re.compile(rb"[a-z0-9_\-.]")


def file_name(name: str) -> str:
    """A file name that stands for this text and no other, on every file system.

    Other characters than small letters, digits, dots, lines and dashes are written as their bytes.
    So nothing leads out of a folder, no file is hidden, and names that differ in capitals stay two
    on file systems that do not tell them apart. Long names end with a digest of the whole.

    >>> file_name("inbox-a"), file_name("../../etc"), file_name("Ä/a"), file_name("")
    ('inbox-a', '%2e.%2f..%2fetc', '%c3%84%2fa', '%')
    """
    parts = [
        chr(byte) if _PLAIN.match(bytes([byte])) else f"%{byte:02x}"
        for byte in name.encode("utf-8", "surrogatepass")
    ]
    made = "".join(parts) or "%"
    if made.startswith("."):
        made = f"%2e{made[1:]}"
    if len(made) <= _LONGEST:
        return made
    return f"{made[:_LONGEST]}%{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
