"""Checks the files of the kit, each with its own real tool: `make kit`.

Tools are taken from the environment, from PATH, or from build/tools, into which `--fetch` builds
those that are written in Go, where Go is installed, and installs those that are written in Python.
A tool that is not there is said, and is no failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KIT, TOOLS = ROOT / "kit", ROOT / "build" / "tools"
GO = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.17.3",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.6.7",
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool@v0.304.2",
}
"""Modules of the Go proxy, pinned."""
PYTHON = ("kubernetes-validate==1.37.0", "grafana-foundation-sdk==1769699379!11.6.0")
"""Packages of an environment of their own, pinned: the schemas of Kubernetes, and of Grafana."""
SCHEMAS = "https://raw.githubusercontent.com/datreeio/CRDs-catalog/main/"
CRDS = f"{SCHEMAS}{{{{.Group}}}}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json"


class Check(NamedTuple):
    """A tool, what it looks at, and how it is called."""

    tool: str
    of: str
    words: Callable[[str, Path], list[str]]


def find(tool: str) -> str | None:
    """Where a tool is, if it is anywhere."""
    own = [Path(sys.executable).parent, TOOLS, TOOLS / "python" / "bin"]
    places = [*map(str, own), os.environ.get("PATH", "")]
    return shutil.which(tool, path=os.pathsep.join(places))


def _unit(name: str) -> Callable[[str, Path], list[str]]:
    """systemd looks whether programs exist: the copy that it looks at calls one that does."""

    def words(tool: str, folder: Path) -> list[str]:
        text = (KIT / "systemd" / f"{name}@.service").read_text()
        copy = folder / f"{name}@x.service"
        copy.write_text(text.replace("/opt/catchment/bin/catchment", shutil.which("true") or ""))
        return [tool, "verify", str(copy)]

    return words


CHECKS = (
    Check("hadolint", "Dockerfile", lambda t, _: [t, str(KIT / "docker" / "Dockerfile")]),
    Check(
        "check-jsonschema",
        "compose.yaml, against the specification of Compose",
        lambda t, _: [t, "--builtin-schema", "vendor.compose-spec", f"{KIT}/docker/compose.yaml"],
    ),
    Check(
        "check-jsonschema",
        "the workflow, against GitHub's schema",
        lambda t, _: [t, "--builtin-schema", "vendor.github-workflows", f"{KIT}/github/ci.yml"],
    ),
    Check("actionlint", "the workflow", lambda t, _: [t, f"{KIT}/github/ci.yml"]),
    Check("helm", "the chart", lambda t, _: [t, "lint", "--strict", f"{KIT}/helm/catchment"]),
    Check("promtool", "alerts", lambda t, _: [t, "check", "rules", f"{KIT}/prometheus/alerts.yml"]),
    Check("systemd-analyze", "the unit of nodes", _unit("catchment-node")),
    Check("systemd-analyze", "the unit of jobs", _unit("catchment-job")),
)


def rendered(helm: str) -> str:
    """The chart with its values, as Kubernetes would get it."""
    command = [helm, "template", "fleet", str(KIT / "helm" / "catchment")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(online: bool = True) -> Iterator[tuple[str, bool | None, str]]:
    """What was checked, whether it is fine (None: its tool is not here), and what was said.

    kubeconform asks for schemas, again and again where it does not get them: not unless `online`.
    """
    with tempfile.TemporaryDirectory() as held:
        for check in CHECKS:
            tool = find(check.tool)
            name = f"{check.tool}: {check.of}"
            if tool is None:
                yield name, None, "not installed"
                continue
            words = check.words(tool, Path(held))
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
            yield name, done.returncode == 0, (done.stdout + done.stderr).strip()
    yield from _kubernetes(online)
    yield _grafana()


def _grafana() -> tuple[str, bool | None, str]:
    """The dashboards, against the types that Grafana makes from its schema."""
    name, python = "grafana-foundation-sdk: the dashboards", TOOLS / "python" / "bin" / "python"
    if not python.exists():
        return name, None, "not installed"
    boards = [str(path) for path in sorted((KIT / "grafana").glob("*.json"))]
    words = [str(python), str(ROOT / "scripts" / "grafana_schema.py"), *boards]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return name, done.returncode == 0, (done.stdout + done.stderr).strip()


def _kubernetes(online: bool) -> Iterator[tuple[str, bool | None, str]]:
    """The chart and the SparkApplication, against the schemas of Kubernetes and of the operator."""
    name, helm, tool = "kubeconform: the chart, rendered", find("helm"), find("kubeconform")
    held, validate = "kubernetes-validate: the chart, rendered", find("kubernetes-validate")
    if helm is None or validate is None:
        yield held, None, "not installed"
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(rendered(helm))
            file.flush()
            words = [validate, "--strict", file.name]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        yield held, done.returncode == 0, (done.stdout + done.stderr).strip()
    if tool is None or helm is None:
        yield name, None, "not installed"
        return
    if not online:
        yield name, None, "it asks for schemas"
        return
    options = ["-strict", "-summary", "-ignore-missing-schemas", "-schema-location", "default"]
    spark = (KIT / "kubernetes" / "sparkapplication.yaml").read_text()
    for title, text, more in (
        (name, rendered(helm), []),
        ("kubeconform: the SparkApplication", spark, ["-schema-location", CRDS]),
    ):
        done = subprocess.run(
            [tool, *options, *more, "-"], input=text, capture_output=True, text=True, timeout=120
        )
        said = (done.stdout + done.stderr).strip()
        if "failed downloading schema" in said or "could not find schema" in said:
            yield title, None, "its schemas cannot be reached"
        else:
            yield title, done.returncode == 0, said


def fetch() -> None:
    """Builds the tools that are written in Go, and installs those in Python."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    home = TOOLS / "python"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", *PYTHON])
    go = shutil.which("go")
    if go is None:
        sys.stdout.write(f"Go is not installed, which builds {', '.join(GO)}\n")
        return
    for tool, module in GO.items():
        if find(tool) is None:
            subprocess.run([go, "install", module], env=os.environ | {"GOBIN": str(TOOLS)})


def main() -> int:
    if "--fetch" in sys.argv:
        fetch()
    failed = False
    for name, fine, said in run():
        mark = "skip" if fine is None else "ok  " if fine else "FAIL"
        more = "" if fine else f" ({said})"
        sys.stdout.write(f"{mark}  {name}{more}\n")
        failed = failed or fine is False
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
