"""Windows in FROM, as the SQL standard and Flink write them.

    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECONDS))
    GROUP BY window_start, window_end, k

says the same as `FROM events GROUP BY window(ts, INTERVAL '10' SECONDS), k`. The text goes in; what
comes out is the text with the table alone in FROM, and the window as GROUP BY would have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catchment.errors import SqlError

_USAGE = {
    "TUMBLE": "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECONDS))",
    "HOP": "TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '5' SECONDS, INTERVAL '10' SECONDS)), "
    "the slide before the size",
    "CUMULATE": "TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, "
    "INTERVAL '1' HOUR)), the step before the size",
    "SESSION": "TABLE(SESSION(TABLE events PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES))",
}
_NAMED = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}


_PARTITION = "PARTITION BY"


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A window in FROM: as GROUP BY would have it, and the columns of PARTITION BY."""

    window: str
    partition: tuple[str, ...] | None


def taken_out(text: str, tokens: Sequence[Any]) -> tuple[str, TableFunction | None]:
    """The text with a plain table in FROM, and the window that stood there, if one did."""
    for place, token in enumerate(tokens):
        if token.text.upper() != "FROM":
            continue
        wrapped = _texts(tokens, place + 1, 2) == ["TABLE", "("]
        head = place + (3 if wrapped else 1)
        name, *opens = _texts(tokens, head, 2) or [""]
        if name in _USAGE and opens == ["("]:
            return _ArgumentReader(text, tokens, name).read(place, head + 2, wrapped)
    return text, None


def _texts(tokens: Sequence[Any], place: int, count: int) -> list[str]:
    return [token.text.upper() for token in tokens[place : place + count]]


class _ArgumentReader:
    """Reads one call of a table function."""

    def __init__(self, text: str, tokens: Sequence[Any], name: str) -> None:
        self.text, self.tokens, self.name = text, tokens, name

    def error(self, given: str | None = None) -> SqlError:
        return SqlError(
            f"{self.name} in FROM has the wrong arguments",
            given=given,
            hint=f"write {_USAGE[self.name]}, and GROUP BY window_start, window_end",
        )

    def read(self, begin: int, place: int, wrapped: bool) -> tuple[str, TableFunction]:
        args, place = self._arguments(place)
        if wrapped:
            if _texts(self.tokens, place, 1) != [")"]:
                raise self.error()
            place += 1
        if len(args) < 3:
            raise self.error()
        table, partition = self._table(self._unnamed(args[0], "DATA"))
        time = self._time(self._unnamed(args[1], "TIMECOL"))
        sizes = self._sizes(args[2:])
        rest = self.text[self.tokens[place - 1].end + 1 :]
        made = f"{self.text[: self.tokens[begin].end + 1]} {table}{rest}"
        return made, TableFunction(self._window(time, sizes), partition)

    def _arguments(self, place: int) -> tuple[list[list[Any]], int]:
        """The tokens of each argument, and the place behind the closing bracket."""
        args: list[list[Any]] = [[]]
        depth = 0
        while place < len(self.tokens):
            token = self.tokens[place]
            place += 1
            if token.text == ")" and depth == 0:
                return args, place
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "," and depth == 0 and not self._lists_columns(args[-1]):
                args.append([])
            else:
                args[-1].append(token)
        raise self.error()

    def _lists_columns(self, arg: list[Any]) -> bool:
        """Whether a comma goes on with PARTITION BY: DESCRIPTOR is not next."""
        if _PARTITION not in _texts(arg, 0, len(arg)):
            return False
        after = self.tokens.index(arg[-1]) + 2
        return _texts(self.tokens, after, 1) not in (["DESCRIPTOR"], ["TIMECOL"])

    def _unnamed(self, arg: list[Any], name: str) -> list[Any]:
        return arg[2:] if _texts(arg, 0, 2) == [name, "=>"] else arg

    def _table(self, arg: list[Any]) -> tuple[str, tuple[str, ...] | None]:
        arg = arg[1:] if _texts(arg, 0, 1) == ["TABLE"] else arg
        texts = _texts(arg, 0, len(arg))
        at = texts.index(_PARTITION) if _PARTITION in texts else len(arg)
        columns = None
        if at < len(arg):
            if self.name != "SESSION":
                raise self.error(self._source(arg))
            columns = tuple(t.text for t in arg[at + 1 :] if t.text not in (",", "(", ")"))
        if not arg[:at]:
            raise self.error()
        return self._source(arg[:at]), columns

    def _time(self, arg: list[Any]) -> str:
        texts = _texts(arg, 0, 2)
        if texts != ["DESCRIPTOR", "("] or len(arg) != 4:
            raise self.error(self._source(arg) if arg else None)
        return self._source(arg[2:3])

    def _sizes(self, args: list[list[Any]]) -> dict[str, str]:
        known = _NAMED[self.name]
        found: dict[str, str] = {}
        for place, arg in enumerate(args):
            named = _texts(arg, 1, 1) == ["=>"]
            key = arg[0].text.upper() if named else known[place] if place < len(known) else ""
            value = arg[2:] if named else arg
            if key not in known or key in found or not value:
                raise self.error(self._source(arg) if arg else None)
            found[key] = self._source(value)
        if any(key not in found for key in known if key != "OFFSET"):
            raise self.error()
        return found

    def _window(self, time: str, sizes: dict[str, str]) -> str:
        offset = [sizes["OFFSET"]] if "OFFSET" in sizes else []
        if self.name == "SESSION":
            return f"session_window({time}, {sizes['GAP']})"
        if self.name == "CUMULATE":
            return f"cumulate_window({', '.join([time, sizes['SIZE'], sizes['STEP'], *offset])})"
        slide = sizes.get("SLIDE", sizes["SIZE"])
        return f"window({', '.join([time, sizes['SIZE'], slide, *offset])})"

    def _source(self, tokens: Sequence[Any]) -> str:
        return self.text[tokens[0].start : tokens[-1].end + 1]
