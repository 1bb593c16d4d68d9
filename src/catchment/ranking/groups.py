"""Which groups' values can be asked for, and which of them their functions need.

Values are the large part of such partials. A quantile needs one or two of them, at known ranks, and
top_k the most frequent, which can be found by asking the nodes that hold them; count_distinct needs
all of them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from catchment.engine.bound import BoundPlan
from catchment.operators import Operator
from catchment.operators.ragged import Ints
from catchment.planner.cost import periods_of
from catchment.planner.edges import Series
from catchment.planner.planned import Planned
from catchment.planner.ranked import COUNTS, SORT, is_ranked, takes_first_keys
from catchment.ranking.column import SearchedColumn
from catchment.ranking.counts import CountedColumn
from catchment.ranking.first_keys import KeysBySum, key_column
from catchment.ranking.runs import RankedColumn

_NUMBERS = (pa.float64(), pa.int64())
"""What sorted values must be."""
_COUNTED = (*_NUMBERS, pa.string(), pa.large_string())
"""What values that are counted must be."""


def ranked_groups(planned: Planned) -> dict[int, str]:
    """The groups whose values may stay where they were read, and their names for good.

    Whether their values are of the right types is known once the plan is bound.
    """
    kept = planned.keys_kept
    groups = (group for group in planned.plan.groups if group.id in kept or is_ranked(group))
    return {group.id: planned.origins[group.id] for group in groups}


class RankedGroup:
    """What both sides know of a group whose values may be asked for."""

    def __init__(self, plan: BoundPlan, id: int) -> None:
        self.bound = bound = plan.groups[id]
        group = bound.group
        self.ranked: list[RankedColumn] = []
        self.counted: list[CountedColumn] = []
        places = set()
        for name, operator in bound.operators.items():
            kind = _value_type(operator)
            if operator.ref.kind == SORT and kind in _NUMBERS:
                self.ranked.append(RankedColumn(group, operator.ref, kind == pa.float64()))
            elif operator.ref.kind == COUNTS and kind in _COUNTED:
                self.counted.append(CountedColumn(group, operator.ref, kind))
            else:
                continue
            places |= {n for need in bound.needs if name in need.operators for n in need.places}
        self.first: KeysBySum | None = None
        """Where rows of keys are kept back, and not single values: the keys, as values."""
        if takes_first_keys(group):
            self.first = key_column(bound, id in plan.made_of.values())
            self.counted = [] if self.first is None else [self.first]
            places = {*range(len(group.windows))}
        self.columns: list[SearchedColumn] = [*self.ranked, *self.counted]
        self.by = group.by if self.first is None else ()
        """What values are told apart by."""
        self.series = Series(periods_of(group.windows))
        self.asked_series = Series(periods_of([group.windows[place] for place in sorted(places)]))
        """The series of the windows that need the values."""
        self.keys = pa.schema([pa.field(f"key {name}", bound.key_types[name]) for name in self.by])

    @property
    def questioned(self) -> bool:
        """Whether nodes keep values back: not where some function needs all of them anyway."""
        return bool(self.columns) and not any(column.all for column in self.columns)

    @property
    def wants(self) -> list[Any]:
        """All that is wanted of values: where it is the same, so are questions."""
        return [
            *([column.field, column.all, *column.texts] for column in self.ranked),
            *(column.wants for column in self.counted),
        ]

    @property
    def _windows_at_once(self) -> Ints:
        """How many windows of each type a slice is in, at most."""
        return -(-self.asked_series.lengths // self.asked_series.slides)

    @property
    def overlaps(self) -> int:
        """How many windows of a type a slice is in, at most."""
        return int(self._windows_at_once.max(initial=1))

    @property
    def searches(self) -> int:
        """How many ranks are looked for in a slice, about, by all windows that it is in."""
        overlaps = int(self._windows_at_once.sum())
        return sum(column.searches for column in self.ranked) * (1 + overlaps.bit_length() - 1)


def _value_type(operator: Operator) -> pa.DataType | None:
    """Of operators whose fields are lists, what the lists hold."""
    first: Any = next(iter(operator.fields.values()))
    return first.value_type if pa.types.is_list(first) else None
