"""What a shell offers when somebody presses the tab key: names out of the job file on the line.

`catchment --install-completion` sets it up. A shell waits for it, so only what can be read at once
is offered, and what cannot be read is not said: the command itself will say it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catchment.errors import CatchmentError

TRIGGERS = ("continuous", "available-now", "batch", "5s", "1m")


def triggers(incomplete: str) -> list[str]:
    """Values of --trigger; periods are examples."""
    return _beginning(TRIGGERS, incomplete)


def suites(incomplete: str) -> list[str]:
    """The suites of benchmarks, in a checkout."""
    from catchment.cli.bench import suites as found

    try:
        return _beginning(found(), incomplete)
    except CatchmentError:
        return []


def node_ids(ctx: Any, incomplete: str) -> list[str]:
    """The nodes of the job file that stands on the line, or of the only one in this folder."""
    data = _job(ctx)
    return _beginning(_named(data.get("nodes"), "id"), incomplete)


def query_names(ctx: Any, incomplete: str) -> list[str]:
    """The queries of the job file that stands on the line."""
    data = _job(ctx)
    return _beginning(_named(data.get("queries"), "name"), incomplete)


def _named(held: Any, key: str) -> list[str]:
    """What the elements of a list in a file are called."""
    listed = held if isinstance(held, list) else []
    return [str(one[key]) for one in listed if isinstance(one, dict) and key in one]


def _job(ctx: Any) -> dict[str, Any]:
    import yaml

    given = ctx.params.get("job") or ctx.params.get("file")
    here = sorted(Path().glob("*.yaml"))
    path = Path(given) if given else here[0] if len(here) == 1 else None
    try:
        held = None if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return held if isinstance(held, dict) else {}


def _beginning(words: Any, incomplete: str) -> list[str]:
    """
    >>> _beginning(["edge-1", "edge-2", "root"], "ed")
    ['edge-1', 'edge-2']
    """
    return [word for word in words if word.startswith(incomplete)]
