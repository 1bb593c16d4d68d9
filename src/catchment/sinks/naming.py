"""What the names of queries and of result columns are called in each sink; no two become one.

In comes a name that a user chose, out comes the name of a table, a column, a topic or a folder.
There is one rule for tables, columns and topics. A name that the sink takes stays as it is. Any
other becomes a readable beginning, an underscore and a digest of the whole name:

    speed                     speed
    a name of 70 letters...   a name of 70 letters..._kqzd7u5bxz4hpvq3w2y6mnf7ai

A name that already ends like that counts as one that the sink does not take, so that what is made
never equals what was kept; digests have 130 bits. A name that the sink has for itself (a system
column, the table of all results) gets an underscore more, and so does that name followed by
underscores: `xmin` is `xmin_`, `xmin_` is `xmin__`. Folders go by `catchment.model.names`, as file
systems may ignore case.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable

from catchment.model.names import MARK, file_name

_DIGEST = 26
"""Letters of a digest: 5 bits each."""
_MADE = re.compile(rf"_[a-z2-7]{{{_DIGEST}}}\Z")
_IDENTIFIER = 63
"""Bytes that PostgreSQL keeps of a name; it drops the rest without a word."""
_TOPIC = 249
"""Characters of a topic that Kafka takes."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""A NUL, which PostgreSQL's texts do not hold, and halves of surrogate pairs, which UTF-8 lacks."""
_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
_ALL = "results"
_QUERY = "{query}"


def column_name(name: str) -> str:
    """The PostgreSQL column of a result column.

    >>> column_name("p95 of v"), column_name("xmin"), column_name("xmin_")
    ('p95 of v', 'xmin_', 'xmin__')
    >>> column_name("long " * 20)
    'long long long long long long long l_zj2va63tawdp3uln4vvo6dtvrn'
    """
    return _identifier(_beside(_SYSTEM, name))


def table_name(prefix: str, query: str) -> str:
    """The PostgreSQL table of a query.

    >>> table_name("ct_", "speed"), table_name("ct_", "results"), table_of_all("ct_")
    ('ct_speed', 'ct_results_', 'ct_results')
    """
    return _identifier(prefix + _beside((_ALL,), query))


def table_of_all(prefix: str) -> str:
    """The PostgreSQL table of all queries, in the long layout; no query's own has its name."""
    return _identifier(prefix + _ALL)


def index_name(table: str, columns: tuple[str, ...]) -> str:
    """The PostgreSQL index over some columns of a table; no table has its name."""
    return _digested(f"{table}_once", "\0".join([table, *columns]), _IDENTIFIER)


def topic_name(topic: str, query: str) -> str:
    """The Kafka topic of a query: `{query}` in a topic stands for its name.

    Kafka takes ASCII letters, digits, `-`, `_` and `.`; it refuses `a.b` beside `a_b`, so no dot is
    kept. Topics that begin with two underscores are its own.

    >>> topic_name("results", "q"), topic_name("{query}", "q-1")
    ('results', 'q-1')
    >>> topic_name("r.{query}", "q 1")
    'r.q_1_bz7tj5ycq5xhmxhx2o7mjvl725'
    """
    if _QUERY not in topic:
        return topic
    places = topic.count(_QUERY)
    room = (_TOPIC - len(topic) + places * len(_QUERY)) // places
    kept = _unchanged(
        query, room, lambda name: re.fullmatch(r"(?!__)[a-zA-Z0-9_-]+", name) is not None
    )
    if kept is None:
        kept = _digested(re.sub(r"[^a-zA-Z0-9_-]", "_", query).lstrip("_"), query, room)
    return topic.replace(_QUERY, kept)


def folder_name(query: str) -> str:
    """The folder of a query's Parquet files, which has no name that a file beside it might have.

    >>> folder_name("a/b: 5%"), folder_name("_hidden"), folder_name("x.parquet")
    ('a@2fb@3a@205@25', '@5fhidden', 'x@2eparquet')
    """
    name = file_name(query)
    stem = name.removesuffix(".parquet")
    return name if stem == name else f"{stem}{MARK}2eparquet"


def digest(text: str) -> str:
    """Lower-case letters and digits that depend on all of a text."""
    whole = base64.b32encode(hashlib.sha256(_encoded(text)).digest()).decode()
    return whole[:_DIGEST].lower()


def _beside(taken: tuple[str, ...], name: str) -> str:
    """A name that is none of those taken: these, and what follows them, make room."""
    return f"{name}_" if name.rstrip("_") in taken else name


def _identifier(name: str) -> str:
    """What PostgreSQL takes, in double quotes: any 63 bytes of UTF-8 without a NUL."""
    kept = _unchanged(name, _IDENTIFIER, lambda name: _NO_TEXT.search(name) is None)
    return _digested(_NO_TEXT.sub("_", name), name, _IDENTIFIER) if kept is None else kept


def _unchanged(name: str, longest: int, fits: Callable[[str], bool]) -> str | None:
    """The name as it is; None if it must become another."""
    short = len(_encoded(name)) <= longest
    return name if name and short and fits(name) and not _MADE.search(name) else None


def _digested(readable: str, name: str, longest: int) -> str:
    beginning = _encoded(readable)[: max(0, longest - _DIGEST - 1)]
    return f"{beginning.decode(errors='ignore')}_{digest(name)}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
