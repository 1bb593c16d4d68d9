"""Names of users as names of files, tables, columns and topics: no two become one."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.model.names import LONGEST, file_name, name_of
from catchment.sinks.naming import (
    column_name,
    folder_name,
    index_name,
    table_name,
    table_of_all,
    topic_name,
)
from catchment.sinks.postgres import STYLE
from catchment.sinks.text import texts

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


SINK_NAMES: dict[str, Callable[[str], str]] = {
    "column": column_name,
    "table": lambda name: table_name("", name),
    "table with a prefix": lambda name: table_name("p_" * 20, name),
    "topic": lambda name: topic_name("t.{query}", name),
    "topic, twice": lambda name: topic_name("{query}-{query}", name),
    "folder": folder_name,
}
PICKED = st.sampled_from(
    [
        *("xmin", "xmin_", "xmin__", "ctid", "results", "results_", "a.b", "a_b", "a b", "a\0b"),
        *("a\u2400b", "A", "a", "\u00e9", "e\u0301", "x" * 63, "x" * 64, "x" * 62 + "\u00e9", ".."),
        *("window_start", "__consumer_offsets", "q.parquet", "q@2eparquet", "", "_"),
    ]
)


def folded(sink: str, name: str) -> str:
    """A name as its sink sees it: Kafka refuses topics that differ in dots and underscores only."""
    if sink.startswith("topic"):
        return name.replace(".", "_")
    return unicodedata.normalize("NFKD", name).casefold() if sink == "folder" else name


@st.composite
def two_names(draw: st.DrawFn, make: Callable[[str], str]) -> tuple[str, str]:
    """Any two; or one, and what another became in the sink, which is the hardest to keep apart."""
    one = draw(st.one_of(ANY, ALIKE, PICKED))
    other = draw(st.one_of(ANY, ALIKE, PICKED))
    again = draw(st.integers(0, 2))
    for _ in range(again):
        other = make(other)
    return one, draw(st.sampled_from([other, make(one), one]))


@pytest.mark.parametrize("sink", SINK_NAMES)
@given(data=st.data())
def test_no_two_names_become_one_in_any_sink(sink: str, data: st.DataObject) -> None:
    make = SINK_NAMES[sink]
    one, other = data.draw(two_names(make))
    assert (folded(sink, make(one)) == folded(sink, make(other))) == (one == other)


@given(name=st.one_of(ANY, ALIKE, PICKED))
def test_names_in_sinks_are_what_their_servers_take(name: str) -> None:
    for made in (column_name(name), table_name("p_", name)):
        assert 0 < len(made.encode()) <= 63
        assert "\0" not in made
    assert column_name(name) not in ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
    assert table_name("p_", name) != table_of_all("p_")
    assert index_name("q", ("a",)) not in (table_name("", name), table_of_all(""))
    topic = topic_name("{query}", name)
    assert re.fullmatch(r"(?!__)[a-zA-Z0-9_-]{1,249}", topic)
    assert not folder_name(name).endswith(".parquet")


def test_names_that_sinks_take_stay_as_they_are() -> None:
    for name in ("speed", "p95 of v", "quantile(v, 0.95)", "größe 温度", "Speed", "x" * 63):
        assert column_name(name) == table_name("", name) == name
    assert topic_name("t-{query}", "Avg_speed-95") == "t-Avg_speed-95"


NULS = st.text(alphabet="a\0\u2400\u241b\\u0", max_size=5)


@given(one=NULS, other=NULS)
def test_texts_without_a_nul_stay_different(one: str, other: str) -> None:
    """PostgreSQL's texts hold no NUL; keys of a row must not become one by that."""
    quoted = [STYLE.quoted(text) for text in (one, other)]
    columns = texts([pa.array([one, other])], STYLE)[0].to_pylist()
    assert columns == quoted
    assert "\0" not in json.loads(quoted[0])
    assert (quoted[0] == quoted[1]) == (one == other)
