"""What is installed: the package alone, without the benchmarks and servers that a checkout has."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    (made,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(made)


def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = [name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name]
    # Spark finds the format `catchment` by the name of the second package.
    packages = {"catchment", "pyspark_catchment"}
    assert {name.split("/")[0] for name in names} == packages
    files = {
        path.relative_to(ROOT / "src").as_posix()
        for package in packages
        for path in (ROOT / "src" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(names) == files


def test_a_wheel_holds_no_benchmarks_and_no_servers_for_tests(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    assert not [name for name in names if "bench" in name and name != "catchment/cli/bench.py"]
    for path in [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tests" / "servers").glob("*.py")]:
        assert not [name for name in names if name.endswith(f"{path.parent.name}/{path.name}")]
    assert "catchment/testing/oracle.py" in names
    assert "catchment/testing/strategies.py" in names


def test_a_source_archive_holds_benchmarks_and_servers() -> None:
    listed = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    wanted = {"benchmarks/__init__.py", "tests/servers/__init__.py", "src/catchment/__init__.py"}
    assert {Path(name).as_posix() for name in listed} >= wanted


def test_bench_without_a_checkout_says_so(wheel: Path, tmp_path: Path) -> None:
    ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "here" / "benchmarks").mkdir(parents=True)
    (tmp_path / "here" / "benchmarks" / "__init__.py").write_text("raise SystemExit('not ours')")
    done = subprocess.run(
        [sys.executable, "-m", "catchment.cli.main", "bench", "engine", "--quick"],
        cwd=tmp_path / "here",
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "catchment: the benchmarks are not part of the installed package; run this command in the "
        "top folder of a checkout of the project's repository\n"
    )


def test_an_installed_package_measures_with_the_checkout_it_is_run_in(
    wheel: Path, tmp_path: Path
) -> None:
    ZipFile(wheel).extractall(tmp_path)
    code = (
        "from catchment.cli import bench\n"
        "from pathlib import Path\n"
        "print(bench.checkout(Path(bench.__file__).resolve().parents[3], Path.cwd()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert done.stdout.strip() == str(ROOT)


EXTRAS = {
    "": "catchment.engine",
    "spark": "catchment.spark.batch",
    "connect": "pyspark.sql.connect.session",
    "kafka": "catchment.sources.kafka_client",
    "mqtt": "catchment.sources.mqtt_client",
    "postgres": "catchment.sinks.postgres_tables",
    "receivers": "catchment.sources.receiver_server",
    "metrics": "catchment.metrics",
    "ui": "catchment.ui.server",
    "plots": "matplotlib",
}
"""The extras, and a module that needs the packages of each."""
UV = Path(sys.executable).parent / "uv"


def installed(package: str, folder: Path) -> Path:
    """The Python of an empty environment into which a package was installed.

    From uv's cache where all of it is there: to fetch and build Spark takes more than a minute. And
    as links, not copies: of Spark there are hundreds of megabytes.
    """
    python = folder / "bin" / "python"
    venv = [UV, "venv", "--quiet", "--python", sys.executable, folder]
    subprocess.run(venv, check=True, capture_output=True, timeout=PATIENCE)
    install = [UV, "pip", "install", "--quiet", "--link-mode", "symlink", "--python", python]
    for more in (["--offline"], []):
        command = [*install, *more, package]
        done = subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE)
        if done.returncode == 0:
            return python
    if "error sending request" in done.stderr:
        pytest.skip("no package index can be reached")
    raise AssertionError(done.stderr)


def said(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, *words], env=env, capture_output=True, text=True, timeout=PATIENCE
    )


def test_every_extra_is_tried() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*declared["optional-dependencies"]} - {"all", "dev", "testing"} == {*EXTRAS} - {""}


@pytest.mark.slow
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_wheel_is_enough_with_each_extra(wheel: Path, extra: str, tmp_path: Path) -> None:
    python = installed(f"catchment[{extra}] @ {wheel.as_uri()}", tmp_path / "env")
    done = said(python, "-c", f"import {EXTRAS[extra]}")
    assert done.returncode == 0, done.stderr
    if extra == "":
        assert said(python, "-m", "catchment.cli.main", "--version").stdout.startswith("catchment")
        code = (
            "import importlib, sys\n"
            "for name in sys.argv[1:]:\n"
            "    try: importlib.import_module(name)\n"
            "    except ModuleNotFoundError: print(name)\n"
        )
        absent = [name for name in EXTRAS.values() if name != "catchment.engine"]
        assert said(python, "-c", code, *absent).stdout.split() == absent


@pytest.mark.slow
def test_a_source_archive_is_enough(tmp_path: Path) -> None:
    (made,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    python = installed(f"catchment @ {Path(made).as_uri()}", tmp_path / "env")
    assert said(python, "-m", "catchment.cli.main", "--version").stdout.startswith("catchment")
