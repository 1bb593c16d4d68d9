"""Compiled loops, for what NumPy needs many passes: optional, and used where they are there.

NumPy code stands beside every one of them and says what it means. The loops are written in C
(`kernels.c`), compiled by `python -m catchment.native.build`, and take no time to load.
"""

from catchment.native.library import SWITCH, Kernels, compiled, kernels, without_kernels

__all__ = ["SWITCH", "Kernels", "compiled", "kernels", "without_kernels"]
