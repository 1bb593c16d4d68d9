"""Every golden transcript on the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchment.testing.transcripts import Transcript, load_folder, run

TRANSCRIPTS = load_folder(Path(__file__).parent / "transcripts")


@pytest.mark.parametrize("transcript", [pytest.param(t, id=t.name) for t in TRANSCRIPTS])
def test_transcript(transcript: Transcript) -> None:
    import catchment as ct

    run(transcript, ct.Engine)
