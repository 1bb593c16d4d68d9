"""A part of the job file: a frozen model that refuses keys it does not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the job file; a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
