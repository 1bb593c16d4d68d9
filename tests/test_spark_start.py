"""What makes Spark start sooner: an archive of classes, and workers that find compiled code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pyspark = pytest.importorskip("pyspark")

from catchment.spark import class_archive, session  # noqa: E402

INSTALLED = Path(pyspark.__file__).parent


def test_workers_import_pyspark_from_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark puts a zip archive of PySpark first on the path of its workers."""
    for name in ("CATCHMENT_PYTHON", "CATCHMENT_PYSPARK", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    (zipped,) = (INSTALLED / "python" / "lib").glob("pyspark.zip")
    monkeypatch.setenv("PYTHONPATH", f"{zipped}:{os.environ.get('PYTHONPATH', '')}")
    told = "import pyspark, sys; print(pyspark.__file__, sys.executable)"
    session.use_worker_python(local=True)
    python = os.environ["PYSPARK_PYTHON"]
    found = subprocess.run([python, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [str(INSTALLED / "__init__.py"), sys.executable]
    plain = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert "pyspark.zip" in plain.stdout


def test_workers_elsewhere_run_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a session on this machine; what the user has chosen stays."""
    for name in ("CATCHMENT_PYTHON", "CATCHMENT_PYSPARK", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    session.use_worker_python(local=True)
    session.use_worker_python(local=False)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    session.use_worker_python(local=True)
    assert os.environ["PYSPARK_PYTHON"] != sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python4")
    session.use_worker_python(local=False)
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python4"


class Shipped:
    """A session of an application on a cluster, which notes what it is given."""

    def __init__(self) -> None:
        self.archives: list[str] = []

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802
        self.archives.append(path)


def test_sessions_of_one_application_ship_one_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the same moment: Spark refuses another archive of the same name."""
    monkeypatch.setattr(session, "is_local", lambda _: False)
    session._package.cache_clear()
    sessions = [Shipped() for _ in range(4)]
    together = threading.Barrier(len(sessions))

    def ship(one: Any) -> None:
        together.wait()
        session.ship(one)
        session.ship(one)

    threads = [threading.Thread(target=ship, args=(one,)) for one in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(one.archives) for one in sessions] == [1] * len(sessions)
    assert len({path for one in sessions for path in one.archives}) == 1


def test_java_is_told_of_an_archive_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert class_archive.java_options() == ""
    path = class_archive.archive_path()
    assert path.parent == tmp_path / "catchment" and pyspark.__version__ in path.name
    path.parent.mkdir()
    path.write_bytes(b"")
    assert f'-XX:SharedArchiveFile="{path}"' in class_archive.java_options()
    assert class_archive.java_options() in session.settings()["spark.driver.extraJavaOptions"]


def test_an_archive_that_cannot_be_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "catchment").write_bytes(b"not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    class_archive.main([])
    assert "no archive was made" in capsys.readouterr().err


@pytest.mark.spark
def test_java_passes_over_what_is_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says nothing on standard output, where results may be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = class_archive.archive_path()
    path.parent.mkdir()
    path.write_bytes(b"something else")
    told = "from catchment.spark.session import session; print(session(cores=1).range(3).count())"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout == "3\n"
