"""Payloads of messages to columns, many at once. A bad payload costs its own event and no other."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.json as paj

from catchment.arrow_memory import arrow_input
from catchment.errors import SourceError, did_you_mean
from catchment.expression import evaluate, quote
from catchment.sources.types import fit

Indexes = npt.NDArray[np.int64]

NO_PAYLOAD = "the message has no payload"
MOST_ROWS = 1 << 20
"""The most events that one message may hold."""
_SPACE = b" \t\r\n"
_CHANGED = re.compile(r"Column\(/(.+)\) changed from (\w+) to (\w+)")
_DECORATION = re.compile(r"^JSON parse error: | in row \d+$")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events of some payloads, in order, and why the others gave none."""

    events: pa.Table
    sender: Indexes
    """For each event, the index of its payload."""
    bad: list[tuple[int, str]] = field(default_factory=list)
    """Index of a payload, and the reason."""


class Decoder(ABC):
    """Reads payloads as events of one schema."""

    spread: ClassVar[int] = 1
    """The most events a payload may hold: places in the order of arrival are that far apart."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @abstractmethod
    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """The events of the payloads. None is a message without payload."""


class JsonPayload(Decoder):
    """One JSON object a payload. Fields that are not in the schema are passed over.

    A field that is not there is null. One of another type makes the payload bad: 1.5 is no whole
    number, "1" is no number, 1 is no text. Times are ISO 8601 texts, UTC unless they say otherwise.

    >>> schema = pa.schema([pa.field("n", pa.int64())])
    >>> made = JsonPayload(schema).decode([b'{"n": 1}', b'{"n": "x"}', None, b"{}"])
    >>> made.events["n"].to_pylist(), made.bad
    ([1, None], [(1, 'n is "x", not int64'), (2, 'the message has no payload')])
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._times = [f for f in schema if pa.types.is_temporal(f.type)]
        self._checks = [(f.name, *c) for f in schema if (c := _check(f.type)) is not None]
        parsed = [pa.field(f.name, pa.string()) if f in self._times else f for f in schema]
        self._options = paj.ParseOptions(
            explicit_schema=pa.schema(parsed), unexpected_field_behavior="ignore"
        )

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        lines = [b"" if payload is None else payload.strip(_SPACE) for payload in payloads]
        # So framed, what one payload leaves open cannot be closed by the next: after "}" and a
        # line break, "{" is only right where a new value may begin. Arrow's parser also dies of
        # a block that begins with null.
        shaped = [line.startswith(b"{") and line.endswith(b"}") for line in lines]
        bad = [
            (i, NO_PAYLOAD if payloads[i] is None else "not a JSON object: " + _shown(lines[i]))
            for i, fits in enumerate(shaped)
            if not fits
        ]
        out = _Out(bad=bad)
        self._read(lines, np.flatnonzero(shaped), out)
        if not out.tables:
            return Decoded(self.schema.empty_table(), np.empty(0, np.int64), sorted(bad))
        table, sender = pa.concat_tables(out.tables), np.concatenate(out.rows)
        for one in self._times:
            table, sender = _timed(table, sender, one, bad)
        return Decoded(table.cast(self.schema), sender, sorted(bad))

    def _read(self, lines: list[bytes], at: Indexes, out: _Out, sifted: bool = False) -> None:
        """Parses these lines in one go; if that fails, without those that are surely bad; if that
        fails too, in halves, down to the bad ones."""
        if not len(at):
            return
        try:
            out.tables.append(self._parse([lines[i] for i in at]))
            out.rows.append(at)
        except pa.ArrowInvalid as error:
            if not sifted:
                found = {i: why for i in at.tolist() if (why := self._surely_bad(lines[i]))}
                out.bad.extend(found.items())
                at = np.array([i for i in at.tolist() if i not in found], np.int64)
                if found:
                    self._read(lines, at, out, sifted=True)
                    return
            if len(at) == 1:
                out.bad.append((int(at[0]), _reason(str(error))))
                return
            for half in np.array_split(at, 2):
                self._read(lines, half, out, sifted=True)

    def _parse(self, lines: list[bytes]) -> pa.Table:
        data = b"\n".join(lines)
        # One block: a row must not be cut, and its columns are then in one chunk.
        whole = paj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        source: Any = arrow_input(data)
        table = paj.read_json(source, read_options=whole, parse_options=self._options)
        if table.num_rows != len(lines):
            raise pa.ArrowInvalid("more than one JSON value")
        table.validate(full=True)  # the parser lets through texts that are not UTF-8
        return table

    def _surely_bad(self, line: bytes) -> str | None:
        """Why Arrow's parser refuses the line on its own; None when it may not.

        A call of that parser takes as long as a hundred of these.
        """
        text = line.decode(errors="surrogateescape")
        try:
            value = json.loads(text)
        except RecursionError:
            return None
        except ValueError as error:
            return None if "Inf" in text else f"not JSON: {error}"  # Arrow reads Inf as a number
        for name, wanted, fits in self._checks:
            given = value.get(name)
            if given is not None and not fits(given):
                return f"{name} is {json.dumps(given)[:_SHOWN]}, not {wanted}"
        return None


@dataclass(slots=True)
class _Out:
    """What was read so far of a block of lines."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: list[Indexes] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)


def _check(kind: pa.DataType) -> tuple[str, Callable[[Any], bool]] | None:
    """What a value of this type is called, and whether a value of JSON is one."""
    if pa.types.is_signed_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return str(kind), lambda v: type(v) is int and -half <= v < half
    if pa.types.is_floating(kind):
        return "a number", lambda v: type(v) in (int, float)
    if pa.types.is_boolean(kind):
        return "true or false", lambda v: type(v) is bool
    if pa.types.is_temporal(kind):
        return "a time as ISO 8601 text", lambda v: type(v) is str
    if pa.types.is_string(kind):
        return "a text in UTF-8", lambda v: type(v) is str and _SURROGATE.search(v) is None
    return None


def _timed(
    table: pa.Table, sender: Indexes, to: pa.Field[Any], bad: list[tuple[int, str]]
) -> tuple[pa.Table, Indexes]:
    """Turns a column of texts into times; events whose text is none are set aside."""
    texts = table[to.name]
    times = _times(table, to)
    at = table.column_names.index(to.name)
    if times.null_count == texts.null_count:
        return table.set_column(at, to, times), sender
    wrong = pc.and_(pc.is_null(times), pc.is_valid(texts)).to_numpy(zero_copy_only=False)
    for i in np.flatnonzero(wrong):
        shown = _shown(str(texts[int(i)].as_py()).encode())
        bad.append((int(sender[i]), f"{to.name} is not a {_word(to.type)}: {shown}"))
    keep = pa.array(~wrong)
    return table.set_column(at, to, times).filter(keep), sender[~wrong]


def _times(table: pa.Table, to: pa.Field[Any]) -> Any:
    """The fast way reads texts that all name a zone, or all do not; the slow way reads each."""
    texts: Any = table[to.name]
    if pa.types.is_timestamp(to.type):
        for zone in ("UTC", None):
            try:
                read: Any = texts.cast(pa.timestamp("us", zone))
            except pa.ArrowInvalid:
                continue
            return (read if zone else pc.assume_timezone(read, "UTC")).cast(to.type)
    word = "DATE" if pa.types.is_date(to.type) else "TIMESTAMP"
    plain = texts.combine_chunks()
    made = evaluate(f"CAST({quote(to.name)} AS {word})", lambda _: plain, len(plain))
    return pa.chunked_array([made]).cast(to.type)


class Arrow(Decoder):
    """Each payload is an Arrow IPC stream of some events; columns are found by their names.

    A column that is not there is null. A payload that does not fit the schema is bad as a whole.
    """

    spread = MOST_ROWS

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        tables, sizes, bad = [self.schema.empty_table()], [0] * len(payloads), []
        for i, payload in enumerate(payloads):
            try:
                table = self._fit(read_stream(payload))
            except (pa.ArrowException, ValueError, OSError) as error:
                reason = " ".join(str(error).split()) or "not an Arrow stream"
                bad.append((i, NO_PAYLOAD if payload is None else reason))
                continue
            tables.append(table)
            sizes[i] = table.num_rows
        sender = np.repeat(np.arange(len(payloads)), sizes)
        return Decoded(pa.concat_tables(tables), sender, bad)

    def _fit(self, table: pa.Table) -> pa.Table:
        if table.num_rows > MOST_ROWS:
            raise pa.ArrowInvalid(f"more than {MOST_ROWS} events in one message")
        for one in self.schema:
            if one.name not in table.column_names:
                table = table.append_column(one, pa.nulls(table.num_rows, one.type))
        return fit(table, self.schema)


def read_stream(payload: bytes | None) -> pa.Table:
    """The table in an Arrow IPC stream, checked to its last byte."""
    table = pyarrow.ipc.open_stream(payload or b"").read_all()
    table.validate(full=True)
    return table


def only(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The schema with only these columns (None: all)."""
    if columns is None:
        return schema
    for name in columns:
        if name not in schema.names:
            raise SourceError("no such column", given=name, hint=did_you_mean(name, schema.names))
    return pa.schema([schema.field(name) for name in columns])


def _reason(error: str) -> str:
    text = _DECORATION.sub("", error).strip().rstrip(".")
    if changed := _CHANGED.fullmatch(text):
        name, wanted, given = changed.groups()
        return f"{name} is a {given}, not a {wanted}"
    return text


def _shown(text: bytes) -> str:
    cut = text[:_SHOWN].decode(errors="replace")
    return repr(cut) + ("..." if len(text) > _SHOWN else "")


def _word(kind: pa.DataType) -> str:
    return "date" if pa.types.is_date(kind) else "timestamp"
