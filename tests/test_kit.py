"""The files of the kit: what they name exists, and their own tools find nothing wrong."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml

import catchment as ct
from catchment.cli.main import app
from catchment.metrics import CATALOGUE

ROOT = Path(__file__).resolve().parent.parent
KIT = ROOT / "kit"


@pytest.fixture(scope="module")
def kit() -> ModuleType:
    found = importlib.util.spec_from_file_location("kit", ROOT / "scripts" / "kit.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def options(*path: str) -> set[str]:
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    return {option for param in command.params for option in param.opts}


ALWAYS = {"hadolint", "check-jsonschema"}
"""Tools of the environment that tests run in."""


def test_tools_find_nothing_wrong(kit: ModuleType) -> None:
    said = list(kit.run(online=False))
    assert [(name, text) for name, fine, text in said if fine is False] == []
    assert {name.partition(":")[0] for name, fine, _ in said if fine} >= ALWAYS
    absent = [f"{name} ({text})" for name, fine, text in said if fine is None]
    if absent:
        pytest.skip(f"what was looked at is fine; not looked at, {'; '.join(absent)}")


def test_the_workflow_installs_what_there_is() -> None:
    """No release is on an index: a bare name would install nothing, or what somebody else made."""
    steps = yaml.safe_load((KIT / "github" / "ci.yml").read_text())["jobs"]["check"]["steps"]
    installs = [step["run"] for step in steps if "pip install" in step.get("run", "")]
    assert len(installs) == 1 and "vendor/catchment-*.whl" in installs[0]


def test_what_a_schema_does_not_know_is_found(kit: ModuleType, tmp_path: Path) -> None:
    python = kit.TOOLS / "python" / "bin" / "python"
    if not python.exists():
        pytest.skip("grafana-foundation-sdk is not here: make kit ARGS=--fetch brings it")
    board = json.loads((KIT / "grafana" / "catchment-prometheus.json").read_text())
    board["panels"][1]["optionz"] = {}
    board["panels"][1]["targets"][0]["expresion"] = "up"
    path = tmp_path / "board.json"
    path.write_text(json.dumps(board))
    words = [str(python), str(ROOT / "scripts" / "grafana_schema.py"), str(path)]
    done = kit.subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "board.json.panels[1].targets[0].expresion is not in the schema",
        "board.json.panels[1].optionz is not in the schema",
    ]


def test_a_wrong_file_is_found(kit: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "Dockerfile").write_text(
        "FROM python\nRUN cd /x && sudo pip install y\n"
    )
    kit.KIT = tmp_path
    try:
        tool = kit.find("hadolint")
        check = next(one for one in kit.CHECKS if one.tool == "hadolint")
        words = check.words(tool, tmp_path)
        done = kit.subprocess.run(words, capture_output=True, text=True)
        assert done.returncode != 0 and "DL3004" in done.stdout
    finally:
        kit.KIT = KIT


def test_jobs_of_the_kit_are_sound() -> None:
    assert len(ct.load_job(KIT / "docker" / "fleet.yaml").nodes) == 4
    values = yaml.safe_load((KIT / "helm" / "catchment" / "values.yaml").read_text())
    job = ct.load_job(values["job"] + "\n")
    assert {node["id"] for node in values["nodes"]} == {node.id for node in job.nodes}


def test_commands_of_the_kit_exist() -> None:
    compose = yaml.safe_load((KIT / "docker" / "compose.yaml").read_text())
    nodes = {node.id for node in ct.load_job(KIT / "docker" / "fleet.yaml").nodes}
    for name in nodes:
        words = compose["services"][name]["command"]
        assert words[:2] == ["node", name]
        assert {word for word in words if word.startswith("--")} <= options("node")
    for unit, command in (("catchment-node", "node"), ("catchment-job", "run")):
        text = (KIT / "systemd" / f"{unit}@.service").read_text()
        (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        assert line.split()[1] == command
        assert {word for word in line.split() if word.startswith("--")} <= options(command)
    chart = (KIT / "helm" / "catchment" / "templates" / "nodes.yaml").read_text()
    assert set(re.findall(r"^\s+- (--\S+)$", chart, re.MULTILINE)) <= options("node")


def test_relative_paths_of_jobs_lie_in_the_volume_of_the_image() -> None:
    """A folder of the host does not belong to the user of the image."""
    text = (KIT / "docker" / "Dockerfile").read_text()
    (place,) = re.findall(r"^WORKDIR (.*)$", text.rpartition("\nFROM")[2], re.MULTILINE)
    assert f"\nVOLUME {place}\n" in text
    for told in (text, (ROOT / "docs" / "kit.md").read_text()):
        assert f"-v catchment:{place} catchment run" in told


def test_prometheus_scrapes_the_nodes_of_compose_and_alerts_ask_for_what_there_is() -> None:
    scraped = yaml.safe_load((KIT / "prometheus" / "prometheus.yml").read_text())
    targets = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    nodes = {node.id for node in ct.load_job(KIT / "docker" / "fleet.yaml").nodes}
    assert {target.partition(":")[0] for target in targets} == nodes
    alerts = (KIT / "prometheus" / "alerts.yml").read_text()
    served = {f"{n}_total" if known.kind == "counter" else n for n, known in CATALOGUE.items()}
    assert set(re.findall(r"catchment_(\w+)", alerts)) <= served
    named = set(re.findall(r"alert: (\w+)", alerts))
    told = set(re.findall(r"`(Catchment\w+)`", (ROOT / "docs" / "operations.md").read_text()))
    assert named == told


def test_tables_of_the_dashboard_are_those_of_the_job() -> None:
    board = (KIT / "grafana" / "catchment-postgres.json").read_text()
    asked = set(re.findall(r"FROM (\w+)", board))
    assert asked <= {query.name for query in ct.load_job(KIT / "docker" / "fleet.yaml").build()}
