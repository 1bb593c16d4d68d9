"""A group of a plan whose columns are known: everything about it that does not change.

A group and the types of its values go in; its operators, its slicer, and the columns that it reads
come out. Slicer, merger and assembler share one of these for each group.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from catchment.engine import settled
from catchment.engine.emitted import told_by
from catchment.engine.results import ResultColumns
from catchment.engine.slicing import GroupSlicer
from catchment.model.plan import Group
from catchment.operators import Operator, OperatorRef, operator_class
from catchment.planner.cost import smallest_gap
from catchment.planner.group import operators_by_window

ValueTypes = Mapping[str | None, pa.DataType | None]
"""The types of aggregated expressions; None stands for no expression, as in `count(*)`."""


class WindowNeed(NamedTuple):
    """Windows of a group, by their places, and the operators that are merged for them."""

    places: tuple[int, ...]
    operators: Mapping[str, Operator]


class BoundGroup:
    """A group with the types of its values and keys.

    `updates` says whether late events may correct its results, which takes one more operator.
    `census` says whether its partials tell how many events they hold.
    """

    def __init__(
        self,
        group: Group,
        types: ValueTypes,
        key_types: Mapping[str, pa.DataType],
        updates: bool = False,
        census: bool = False,
    ) -> None:
        self.group = group
        self.types = types
        self.key_types = dict(key_types)
        self.updates = updates
        self.operators = operators_of(group, types, updates, census)
        self.slicer = GroupSlicer(group, self.operators)
        self.shape = ResultColumns(group, types, self.key_types, updates)
        self.smallest_gap = smallest_gap(group.windows)
        """The shortest pause that ends a session; None where no window is one."""
        self.conditions = settled.conditions_of(group)
        columns = [operator.ref.column for operator in self.operators.values()]
        columns += [text for window in group.windows for text in (*window.durations, *window.reads)]
        self.columns = list(dict.fromkeys(column for column in columns if column))
        self.values = pa.schema([pa.field(c, types[c] or pa.null()) for c in self.columns])
        """The columns that its operators and windows read."""

    @cached_property
    def needs(self) -> list[WindowNeed]:
        """The windows that need the same large operators, and what is merged for them.

        Slices hold all operators of the group. To merge sorted values, sets and sketches for
        windows that nobody asks them of would cost more than all the rest.
        """
        every = list(self.operators.items())
        large = [n for n, (_, operator) in enumerate(every) if not operator.small]
        if not large or len(self.group.windows) == 1:
            return [WindowNeed(tuple(range(len(self.group.windows))), self.operators)]
        always = range(len(self.group.operators), len(every))  # what no answer asks for
        places: dict[tuple[int, ...], list[int]] = {}
        wanted: dict[tuple[int, ...], set[int]] = {}
        for window, needed in enumerate(operators_by_window(self.group)):
            own = tuple(n for n in large if n in needed)
            places.setdefault(own, []).append(window)
            wanted.setdefault(own, set(always)).update(needed)
        return [
            WindowNeed(
                tuple(windows), {id: op for n, (id, op) in enumerate(every) if n in wanted[own]}
            )
            for own, windows in places.items()
        ]


def operators_of(
    group: Group, types: ValueTypes, updates: bool = False, census: bool = False
) -> dict[str, Operator]:
    """The group's operators over columns of these types, by their names."""
    refs = [OperatorRef(*ref) for ref in group.operators]
    # How many events a window of a stream holds is known by nothing else.
    needed = [OperatorRef("count")] if census or group.slicing == "stream" else []
    needed += [OperatorRef(told_by(group.windows))] if updates else []
    refs += [ref for ref in dict.fromkeys(needed) if ref not in refs]
    return {ref.id: operator_class(ref.kind)(ref, types.get(ref.column)) for ref in refs}
