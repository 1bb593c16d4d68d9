"""What tasks are told, as text: options of data sources and stateful processors are no objects."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any, Self

from pyspark import cloudpickle


class AsText:
    """A value that travels to tasks as text."""

    def to_text(self) -> str:
        data: bytes = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]
        return base64.b64encode(data).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        made: Self = _read(text)
        return made


@lru_cache(maxsize=8)
def _read(text: str) -> Any:
    return cloudpickle.loads(base64.b64decode(text))
