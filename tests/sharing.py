"""Which tests use the same server, or the session of Spark, so that one worker runs them.

Whoever hands tests out knows their names only, so the text of their file has to tell: a test or a
fixture of the file has the server as an argument, or asks for it by its name.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

SERVERS = ("kafka", "postgres", "mosquitto", "prometheus")
SHARED = ("spark", *SERVERS)


def server_of(nodeid: str) -> str | None:
    """The server that a test uses; of several, the first."""
    file, _, test = nodeid.partition("::")
    return _users(file).get(test.split("[")[0].split("::")[-1])


@functools.cache
def _users(file: str) -> dict[str, str]:
    """The functions of a file that use a server, and which."""
    path = Path(__file__).parent.parent / file
    text = path.read_text() if path.name.startswith("test_") else ""
    nodes = ast.walk(ast.parse(text))
    asked = {node.name: _asked(node) for node in nodes if isinstance(node, ast.FunctionDef)}

    def used(name: str) -> set[str]:
        found, more = set[str](), {name}
        while more:
            found |= more
            more = {other for one in more for other in asked.get(one, ())} - found
        return found

    reached = {name: used(name) for name in asked}
    shared = {name: [one for one in SHARED if one in names] for name, names in reached.items()}
    return {name: servers[0] for name, servers in shared.items() if servers}


def _asked(function: ast.FunctionDef) -> set[str]:
    """The fixtures that a function names, or asks for by name; helpers may be called the same."""
    by_name = re.findall(r"getfixturevalue\('(\w+)'\)", ast.unparse(function))
    return {argument.arg for argument in function.args.args} | set(by_name)
