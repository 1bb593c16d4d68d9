"""A whole tree in one process, under a virtual clock, with faults by seed."""

from catchment.simulate.world import Faults, World

__all__ = ["Faults", "World"]
