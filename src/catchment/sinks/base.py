"""What takes results: each delivery may come twice, and must count once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import pyarrow as pa

from catchment.errors import SinkError
from catchment.model.capacity import Capacity
from catchment.model.section import SectionByType, registry_of_types, type_of


@dataclass(frozen=True, slots=True)
class Delivery:
    """Results of one batch and one bucket of keys.

    The same (job, batch, part) always holds the same results. After a crash the last deliveries
    come again; those of one part never come out of order.
    """

    job: str
    """Identity of the job: a name and some random letters, the same over restarts."""
    batch: int
    part: int
    results: Mapping[str, pa.Table]
    """Query name to result rows: the key columns, window_start and window_end (timestamps, UTC,
    microseconds), window_index (where windows of a key may have equal bounds), the aggregates,
    and, where late events may correct results, revision (0, 1, ...) and retracted. No two results
    of a query have the same key columns, bounds, window_index and revision."""
    keys: Mapping[str, tuple[str, ...]]
    """Query name to the names of its key columns."""


class Sink(SectionByType, ABC):
    """A sink: its options are its fields, so that it is checked, documented and pickled."""

    registry = registry_of_types("sink", "catchment.sinks", "catchment.sinks")

    on_driver: ClassVar[bool] = False
    """Whether deliveries go to the driver; otherwise each executor writes its own."""

    @abstractmethod
    def check(self) -> None:
        """Raises SinkError when nothing can be written: no permission, no server, a wrong name."""

    def misfits(
        self, results: Mapping[str, pa.Schema], keys: Mapping[str, tuple[str, ...]]
    ) -> Iterable[SinkError]:
        """Every reason why results of these columns, by query, can never be written.

        Nothing is connected to: it is asked where a job is checked before it runs.
        """
        return ()

    @abstractmethod
    def write(self, delivery: Delivery) -> None:
        """Writes a delivery, durably, before it returns; writing it again changes nothing.

        Raises SinkError when the sink refuses; the delivery comes again later.
        """

    def finish(self) -> None:
        """All deliveries of the job have been written: what was held back for more may be given.

        Raises SinkError when the sink refuses; it is asked again later.
        """
        return

    def capacities(self) -> list[Capacity]:
        """What grows in this process, how large it is and may get."""
        return []

    def close(self) -> None:
        """Lets go of connections."""
        return


SinkType = TypeVar("SinkType", bound=Sink)


def register_sink(sink: type[SinkType]) -> type[SinkType]:
    """Makes a sink known by its `type`."""
    Sink.registry.add(type_of(sink), sink)
    return sink
