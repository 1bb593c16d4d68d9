"""Names of users as names of files: injective, safe, and reversible unless they are long."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.model.names import LONGEST, file_name, name_of

ANY = st.text(max_size=400)
"""Also lone surrogates, NULs and slashes."""
ALIKE = st.text(alphabet="aA.@_-/2eE5\u00e9\u0301e\u0130iI\u212ak ", max_size=6)
"""Texts that many rules take for one another."""


@given(name=st.one_of(ANY, ALIKE))
@example(name="")
@example(name="..")
@example(name=".hidden")
@example(name="/etc/passwd")
@example(name="job")
@example(name="com1.txt")
@example(name="x" * 300)
@example(name="\ud800")
def test_a_file_name_is_safe_and_tells_its_name(name: str) -> None:
    made = file_name(name)
    assert re.fullmatch(r"[a-z0-9@][a-z0-9@._-]*", made)
    assert not made.endswith(".")
    assert 0 < len(made) <= LONGEST
    assert name_of(made) == (None if "@@" in made else name)


@given(one=st.one_of(ANY, ALIKE), other=st.one_of(ANY, ALIKE))
@example(one="Speed", other="speed")
@example(one="\u00e9", other="e\u0301")
@example(one="x" * 300, other="x" * 299 + "y")
@example(one="x" * 300, other="X" * 300)
@example(one="a/b", other="a@2fb")
def test_no_two_names_become_one(one: str, other: str) -> None:
    def folded(name: str) -> str:
        """As a file system sees it that ignores case and normalizes."""
        return unicodedata.normalize("NFKD", file_name(name)).casefold()

    assert (folded(one) == folded(other)) == (one == other)


@given(file=st.one_of(ANY, ALIKE))
@example(file="@53PEED")
@example(file="@61")
@example(file="@ff")
def test_what_is_no_file_name_of_ours_stands_for_nothing(file: str) -> None:
    name = name_of(file)
    assert name is None or file_name(name) == file


@pytest.mark.parametrize("device", ["con", "nul", "aux.txt", "lpt9", "com0.tar.gz"])
def test_names_of_devices_are_no_file_names(device: str) -> None:
    assert file_name(device).startswith("@")
    assert file_name(f"{device.partition('.')[0]}x") == f"{device.partition('.')[0]}x"
