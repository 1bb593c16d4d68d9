"""Who has not installed an extra is told which one, and never gets a bare import error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = """
import importlib.util, json, sys
BLOCKED = {"pyspark", "py4j", "pandas", "confluent_kafka", "paho", "psycopg", "matplotlib"}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import pyarrow as pa
import catchment as ct
from typer.testing import CliRunner
from catchment.cli.main import app

QUERY = ct.Query("q", ct.sum("v").alias("s"), window=ct.tumbling("2s"))
EVENTS = pa.table({"ts": pa.array([1, 2], pa.timestamp("s")), "v": [1, 2]})
DONE = ct.run(EVENTS, QUERY, spark=False)
said = {}
for name, act in {
    "run": lambda: ct.run(EVENTS, QUERY),
    "Job": lambda: ct.Job,
    "windows": lambda: ct.windows,
    "pandas": lambda: DONE.to_pandas("q"),
    "plot": lambda: DONE.plot("q"),
}.items():
    try:
        act()
        said[name] = "nothing"
    except ct.MissingPackageError as error:
        said[name] = str(error)
done = CliRunner().invoke(app, ["queries", "ls", "--checkpoint", "state"])
said["command"] = done.stderr
said["code"] = done.exit_code
said["rows"] = DONE["q"].num_rows
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_missing_extra_is_named(said: dict[str, object]) -> None:
    assert said["run"] == (
        "to run on Spark, as ct.run does without spark=False, needs a package that is not "
        "installed (given: pyspark); pip install 'catchment[spark]'"
    )
    for name in ("Job", "windows"):
        assert str(said[name]).startswith(f"ct.{name} needs a package that is not installed")
    assert "pip install 'catchment[spark]'" in str(said["pandas"])
    assert "pip install 'catchment[plots]'" in str(said["plot"])


def test_what_needs_no_extra_works_without(said: dict[str, object]) -> None:
    assert said["rows"] == 2


def test_a_command_says_it_in_one_line(said: dict[str, object]) -> None:
    text = "a package is not installed (given: pyspark); pip install 'catchment[spark]'"
    assert (said["command"], said["code"]) == (f"catchment: {text}\n", 1)
