"""PostgreSQL's side of its sink: connections, tables that are made when missing, and upserts."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from catchment.errors import SinkError
from catchment.sinks.naming import index_name
from catchment.sinks.postgres import TableRows

PostgresConnection = psycopg.Connection[Any]
T = TypeVar("T")

_OLDEST = 15
_CONNECT = 10
"""Seconds for a server to take a connection."""
_PAUSES = (0.1, 2.0)
_TABLES = 50
"""Tables made in one transaction, each of which takes some of the server's few locks."""
_LOCK = 0x6361746368
"""The advisory lock that processes hold while they make tables."""
# The server goes, comes, or is too busy; two parts stood in each other's way.
_PASSING = ("08", "40", "57P", "53300", "55P03", "58")
# Tables or columns that were there have gone.
_GONE = ("42P01", "42703", "42P10", "3F000")
_NUMBER = "window_index"
_FITS = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying",),
}
_HINTS = {
    "42501": "grant this user what it needs",
    "54000": "a key is too long for an index of PostgreSQL, which takes some 2,700 bytes",
    "53200": "use the long layout, or raise max_locks_per_transaction of the server",
    "53100": "the server's disk is full; the results are written when they come again",
    "25006": "the server is read-only; name the primary in the dsn",
    "3F000": "make the schema first",
}


class TableTarget(NamedTuple):
    """Where to write, and for how many seconds to try."""

    dsn: str
    namespace: str
    timeout: float

    @property
    def shown(self) -> str:
        """The address without its password."""
        try:
            known = conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            return "a dsn that cannot be read"
        host, port = known.get("host", "localhost"), known.get("port", 5432)
        return f"{known.get('user', '')}@{host}:{port}/{known.get('dbname', '')}"


class KnownTable(NamedTuple):
    """A table, and what was asked of it."""

    dsn: str
    namespace: str
    table: str
    columns: tuple[tuple[str, str], ...]
    identity: tuple[str, ...]


_idle: dict[tuple[int, str], list[PostgresConnection]] = {}
"""Connections that nobody uses, by process and dsn: a forked one may not use its parent's."""
_known: dict[KnownTable, frozenset[str]] = {}
"""Tables that were seen to fit, and their columns."""


def check(target: TableTarget) -> None:
    """Fails when the server is not there or too old, or the schema takes no tables."""
    _tried(target._replace(timeout=0), lambda connection: _check(connection, target))


def write(target: TableTarget, rows: Sequence[TableRows]) -> None:
    """Puts rows in their tables, all or none."""

    def work(connection: PostgresConnection) -> None:
        _prepare(connection, target, rows)
        with connection.pipeline(), connection.transaction():
            for some in rows:
                there = _known[_seen(target, some)]
                statement = _upsert(target.namespace, some, there)
                for chunk in some.chunks:
                    connection.execute(statement, [chunk])

    _tried(target, work)


def close(target: TableTarget) -> None:
    for connection in _idle.pop((os.getpid(), target.dsn), []):
        connection.close()


@atexit.register
def _close_all() -> None:
    for pid, dsn in list(_idle):
        if pid == os.getpid():
            close(TableTarget(dsn, "", 0))


def _tried(target: TableTarget, work: Callable[[PostgresConnection], T]) -> T:
    """Does the work on a connection; again, for a while, when what failed may pass."""
    end, pause = time.monotonic() + target.timeout, _PAUSES[0]
    while True:
        try:
            return _once(target, work)
        except psycopg.Error as error:
            state = error.sqlstate or ""
            if state in _GONE:
                _known.clear()
            elif not _passes(error):
                raise _explained(error, target) from error
            if time.monotonic() + pause > end:
                raise _explained(error, target) from error
            close(target)  # a server that came back knows none of them
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])


def _once(target: TableTarget, work: Callable[[PostgresConnection], T]) -> T:
    idle = _idle.setdefault((os.getpid(), target.dsn), [])
    try:
        connection = idle.pop()
    except IndexError:
        connection = _connect(target)
    try:
        made = work(connection)
    except BaseException:
        connection.close()
        raise
    _idle.setdefault((os.getpid(), target.dsn), []).append(connection)
    return made


def _connect(target: TableTarget) -> PostgresConnection:
    given = conninfo_to_dict(target.dsn)
    timeout = max(1, round(target.timeout or _CONNECT))
    wanted: dict[str, Any] = {
        "connect_timeout": str(min(timeout, _CONNECT)),
        "tcp_user_timeout": str(1000 * timeout),
        "application_name": "catchment",
    }
    wanted = {name: value for name, value in wanted.items() if name not in given}
    connection = psycopg.connect(
        target.dsn, autocommit=True, cursor_factory=psycopg.RawCursor, **wanted
    )
    # Times are told with their zone, so the session's does not matter; a lock's wait must end.
    connection.execute(f"SET lock_timeout = {1000 * timeout}")
    return connection


def _passes(error: psycopg.Error) -> bool:
    if error.sqlstate is None:
        # libpq gives no code for a connection that it could not make or that broke.
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_PASSING)


def _explained(error: psycopg.Error, target: TableTarget) -> SinkError:
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        # Its text may quote the password.
        return SinkError(
            "the dsn cannot be read", hint="write it as postgresql://user@host:5432/database"
        )
    if error.sqlstate is None:
        what = "PostgreSQL cannot be reached"
    else:
        what = "PostgreSQL refused the results"
    text = " ".join(str(error).split())
    hint = _HINTS.get(error.sqlstate or "")
    return SinkError(what, given=target.shown, hint=f"{hint}: {text}" if hint else text)


def _check(connection: PostgresConnection, target: TableTarget) -> None:
    version = connection.info.server_version // 10_000
    if version < _OLDEST:
        raise SinkError(
            f"the sink needs PostgreSQL {_OLDEST} or newer",
            given=f"{target.shown}: {version}",
            hint="older ones take rows with a null key for different rows",
        )
    row = connection.execute(
        "SELECT oid IS NOT NULL AND has_schema_privilege(oid, 'CREATE, USAGE'),"
        " pg_is_in_recovery() FROM (SELECT to_regnamespace($1)::oid AS oid) AS found",
        [_quoted(target.namespace)],
    ).fetchone()
    granted, standby = row or (None, None)
    if standby:
        raise SinkError("the server is read-only", given=target.shown, hint="name the primary")
    if not granted:
        raise SinkError(
            "the schema is not there, or this user may not make tables in it",
            given=target.namespace,
            hint=f"CREATE SCHEMA {_quoted(target.namespace)}, or GRANT CREATE, USAGE on it",
        )


def _prepare(
    connection: PostgresConnection, target: TableTarget, rows: Sequence[TableRows]
) -> None:
    """Makes tables and columns that are missing; refuses those that do not fit."""
    wanted = {_seen(target, some): some for some in rows}
    new = [some for seen, some in wanted.items() if seen not in _known]
    for start in range(0, len(new), _TABLES):
        some = new[start : start + _TABLES]
        with connection.transaction():
            # Two parts may find the same table missing.
            connection.execute("SELECT pg_advisory_xact_lock($1)", [_LOCK])
            names = [name for each in some for name in (each.table, _index(each))]
            found = _columns(connection, target.namespace, names)
            for each in some:
                for statement in _changes(target.namespace, each, found):
                    connection.execute(statement)
        for each in some:
            there = {*each.columns, *found.get(each.table, ())}
            _known[_seen(target, each)] = frozenset(there)


def _seen(target: TableTarget, rows: TableRows) -> KnownTable:
    columns = tuple(rows.columns.items())
    return KnownTable(target.dsn, target.namespace, rows.table, columns, rows.identity)


def _columns(
    connection: PostgresConnection, namespace: str, tables: Sequence[str]
) -> dict[str, dict[str, str]]:
    """The columns of the tables and indexes that are there, and their types."""
    cursor = connection.execute(
        "SELECT relname, attname, format_type(atttypid, atttypmod)"
        " FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace"
        " LEFT JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped"
        " WHERE nspname = $1 AND relname = ANY($2)",
        [namespace, list(tables)],
    )
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in cursor.fetchall():
        found.setdefault(table, {})[column] = kind
    return found


def _index(rows: TableRows) -> str:
    """The name of the index that knows which rows are the same."""
    return index_name(rows.table, rows.identity)


def _changes(namespace: str, rows: TableRows, there: dict[str, dict[str, str]]) -> list[str]:
    """What makes a table fit."""
    found = there.get(rows.table)
    table = f"{_quoted(namespace)}.{_quoted(rows.table)}"
    if found is None:
        columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in rows.columns.items())
        made = [f"CREATE TABLE {table} ({columns})"]
    else:
        _refuse_older(namespace, rows, found)
        for name, kind in rows.columns.items():
            _fits(rows, name, kind, found.get(name))
        missing = {name: kind for name, kind in rows.columns.items() if name not in found}
        made = [f"ALTER TABLE {table} ADD {_quoted(n)} {kind}" for n, kind in missing.items()]
    # Not even asked for when it is there, as that would wait for all who write.
    if (index := _index(rows)) not in there:
        identity = ", ".join(map(_quoted, rows.identity))
        made.append(
            f"CREATE UNIQUE INDEX {_quoted(index)} ON {table} ({identity}) NULLS NOT DISTINCT"
        )
    return made


def _refuse_older(namespace: str, rows: TableRows, found: dict[str, str]) -> None:
    """Fails at a table of a version that did not tell windows of equal bounds apart.

    Its unique index over key and bounds would refuse the second of them.
    """
    if _NUMBER in rows.identity and _NUMBER not in found and {*rows.identity} <= {*found, _NUMBER}:
        table = f"{_quoted(namespace)}.{_quoted(rows.table)}"
        raise SinkError(
            f"the table {rows.table!r} cannot tell windows of equal bounds apart",
            given=f"column {_NUMBER!r}: missing",
            hint="rename the table, and a new one is made; or ALTER TABLE"
            f" {table} ADD {_NUMBER} bigint NOT NULL DEFAULT 0, and drop its unique index",
        )


def _fits(rows: TableRows, name: str, kind: str, found: str | None) -> None:
    if found == kind or found in _FITS.get(kind, ()):
        return
    if found is None and name not in rows.identity:
        return
    raise SinkError(
        f"the table {rows.table!r} does not fit the results",
        given=f"column {name!r}: {found or 'missing'} instead of {kind}",
        hint="rename or drop the table, or give the sink a prefix",
    )


def _upsert(namespace: str, rows: TableRows, there: frozenset[str]) -> str:
    columns = ", ".join(map(_quoted, rows.columns))
    typed = ", ".join(f"{_quoted(name)} {kind}" for name, kind in rows.columns.items())
    identity = ", ".join(map(_quoted, rows.identity))
    revised = "revision" in rows.columns
    # One order for all, so that two who write the same rows wait for each other in turn; and of
    # two revisions in one delivery only the newest, as a statement may touch a row only once.
    order = f"{identity}, revision DESC NULLS LAST" if revised else identity
    changed = [_quoted(name) for name in rows.columns if name not in rows.identity]
    sets = [f"{name} = excluded.{name}" for name in changed]
    sets += [f"{_quoted(name)} = NULL" for name in rows.empty if name in there]
    action = f"UPDATE SET {', '.join(sets)}"
    if not sets:
        action = "NOTHING"
    elif revised:
        action += " WHERE coalesce(kept.revision, 0) <= coalesce(excluded.revision, 0)"
    return (
        f"INSERT INTO {_quoted(namespace)}.{_quoted(rows.table)} AS kept ({columns})"
        f" SELECT DISTINCT ON ({identity}) {columns}"
        f" FROM json_to_recordset($1::json) AS new ({typed}) ORDER BY {order}"
        f" ON CONFLICT ({identity}) DO {action}"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
