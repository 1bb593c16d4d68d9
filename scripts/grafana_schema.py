"""Reads dashboards as Grafana's schema has them, and says what of them the schema does not know.

The types are those that Grafana makes from its schema and publishes (`grafana-foundation-sdk`): of
dashboards, of their panels' options, and of queries. What a dashboard has and they do not is lost
when it is read and written again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """The places of what is in one value and not in another.

    >>> list(lost({"a": [1, {"b": 2}]}, {"a": [1, {}]}))
    ['.a[1].b']
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from lost(value, after[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for n, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{at}[{n}]")
    elif before != after:
        yield at


def main() -> int:
    register_default_plugins()
    found = []
    for name in sys.argv[1:]:
        board = json.loads(Path(name).read_text(encoding="utf-8"))
        again = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
        found += [f"{Path(name).name}{place} is not in the schema" for place in lost(board, again)]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
