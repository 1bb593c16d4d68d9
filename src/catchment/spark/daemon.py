"""The process that Spark forks its Python workers from, with all they need imported already.

A worker would otherwise spend its first seconds importing; a job starts several kinds of them.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

from catchment.spark import reader, state, tasks

PRELOADED = (reader, state, tasks)

if __name__ == "__main__":
    # A worker collects garbage after every task: what was imported is not worth looking at again,
    # and left alone it also stays shared with the process it was forked from.
    gc.freeze()
    manager()
