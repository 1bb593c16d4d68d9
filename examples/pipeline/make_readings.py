"""Writes events for the pipeline, as files of Parquet: in the folder `readings`, beside it."""

from pathlib import Path

import pyarrow.parquet as pq

from catchment.generator import Generator

events = Generator(seed=1, keys=5, rate=500).table(20_000)
folder = Path(__file__).parent / "readings"
folder.mkdir(exist_ok=True)
for number in range(4):
    pq.write_table(events.slice(number * 5_000, 5_000), folder / f"{number}.parquet")
print(f"{len(events):,} readings in {folder}")
