"""Assembling sessions: rows that no break parts are fused, in any order of arrival."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catchment.engine.rows import Operators, Rows, concat_rows, merge_rows, no_rows
from catchment.operators import Grouping
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask


class Sessions(NamedTuple):
    """The sessions of one gap that are not final: one row each, `first` to `last` event.

    Sessions that begin by `since + gap` may have begun unseen, and are not results.
    """

    gap: int
    open: Rows
    since: int | None = None


def sessions(gap: int, operators: Operators, since: int | None) -> Sessions:
    return Sessions(gap, no_rows(operators), since)


def step(state: Sessions, rows: Rows, frontier: int, operators: Operators) -> tuple[Sessions, Rows]:
    """Takes in rows; gives the sessions that nothing at or after the frontier can join."""
    fused = fuse(concat_rows([state.open, rows], operators), state.gap, operators)
    done = fused.last + state.gap < frontier
    return state._replace(open=fused.where(~done)), seen(state, fused.where(done))


def complete(state: Sessions, rows: Rows, frontier: int, operators: Operators) -> Rows:
    """The sessions complete at the frontier, with these rows taken in, leaving all as it is."""
    return step(state, rows, frontier, operators)[1]


def seen(state: Sessions, rows: Rows) -> Rows:
    return rows if state.since is None else rows.where(rows.first > state.since + state.gap)


def fuse(rows: Rows, gap: int, operators: Operators) -> Rows:
    """One row per session: sorted by key and time, a break is a pause longer than the gap."""
    if len(rows) < 2:
        return rows
    order = np.lexsort((rows.first, rows.key))
    rows = rows.take(order)
    other = rows.key[1:] != rows.key[:-1]
    new = np.ones(len(rows), np.bool_)
    new[1:] = other | (rows.first[1:] - latest(rows.last, other)[:-1] > gap)
    heads = np.flatnonzero(new)
    if len(heads) == len(rows):
        return rows
    return merge_rows(rows, Grouping(None, len(heads), starts=heads, rows=len(rows)), operators)


def latest(last: Ints, other: Mask) -> Ints:
    """The greatest `last` so far within each key (a row may lie inside the one before it)."""
    segment: Ints = np.concatenate([[0], np.cumsum(other)])
    if (np.diff(last)[~other] >= 0).all():
        return last
    # Ranks instead of times, so that adding a key's number cannot overflow.
    values, rank = np.unique(last, return_inverse=True)
    rank = rank.astype(np.int64) + segment * len(values)
    best = np.maximum.accumulate(rank) - segment * len(values)
    return values[best]
