"""Compiles `kernels.c` for this machine: `python -m catchment.native.build`.

It takes a second and any C compiler (`cc`, or what `CC` says). The library is put beside the
compiled Python of this package, and processes that start later use it. Where there is no compiler,
NumPy does the same, and that is said.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from catchment.native.library import SOURCE, compiled, library_path

# No multiplication is fused with an addition: results shall be the bits that NumPy gives.
_FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared")


def build() -> str:
    """Compiles the loops where that is possible; what came of it, as a sentence."""
    path = library_path()
    if path is None:
        return "the package is in an archive: NumPy alone is used"
    if path.exists():
        return "compiled loops are there already"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return f"no C compiler ({compiler[0]}): NumPy alone is used, which takes longer"
    try:
        path.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            command = [*compiler, *_FLAGS, str(SOURCE), "-o", str(made), "-lm"]
            told = subprocess.run(command, capture_output=True, text=True, check=False)
            if told.returncode:
                lines = told.stderr.strip().splitlines() or ["without a word"]
                return f"the C compiler failed ({lines[-1]}): NumPy alone is used"
            made.replace(path)  # whole or not at all
            compiled.cache_clear()
    except OSError as error:
        return f"the loops cannot be written ({error}): NumPy alone is used"
    return "compiled loops for this machine"


if __name__ == "__main__":
    sys.stdout.write(f"catchment: {build()}\n")
