"""What a job needs of the machine it runs on."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from catchment.errors import CatchmentError

JAVA = 17
_INSTALL = "install one (Debian, Ubuntu: apt install openjdk-17-jre-headless) or set JAVA_HOME"


def has_spark() -> bool:
    """Whether pyspark is installed."""
    return find_spec("pyspark") is not None


def need_ui() -> None:
    """Fails in one sentence where the page's server is not installed."""
    lacking = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if lacking:
        raise CatchmentError(
            "the page is not installed",
            given=f"no {' and no '.join(lacking)}",
            hint="pip install 'catchment[ui]'",
        )


def need_spark() -> None:
    """Fails in one sentence where Spark could not start: it would take a page of Java's own."""
    if not has_spark():
        raise CatchmentError("Spark is not installed", hint="pip install 'catchment[spark]'")
    java = java_path()
    version = java_version(java)
    if version is None:
        raise CatchmentError(
            f"Java {JAVA} or later is needed to run jobs on Spark, and none was found",
            given=java,
            hint=_INSTALL,
        )
    if version < JAVA:
        raise CatchmentError(
            f"Java {JAVA} or later is needed to run jobs on Spark, and this one is Java {version}",
            given=java,
            hint="install a newer one or point JAVA_HOME to it",
        )


def java_path() -> str:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def java_version(java: str) -> int | None:
    """Java's major version; None where there is no Java."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major(done.stderr + done.stdout)


def major(text: str) -> int | None:
    """The major version in what `java -version` says.

    >>> major('openjdk version "17.0.15" 2025-04-15'), major('java version "1.8.0_412"'), major("")
    (17, 8, None)
    """
    found = re.search(r' version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
