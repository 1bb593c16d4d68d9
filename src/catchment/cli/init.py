"""`catchment init`: a job file to begin with."""

from __future__ import annotations

from pathlib import Path

from catchment.errors import JobError

JOB = """\
# A job for Catchment: windowed aggregations over one stream of events. It runs as it is:
#     catchment run {file}
# `catchment explain {file}` shows what its queries share, `catchment schema` every key there is.
name: soccer
time: ts            # the column of event time
lateness: 2s        # how much later than the newest event another may come
late: drop          # what becomes of one that comes later still: drop, collect or update

# Where events come from. The generator makes them up; real ones come from parquet, csv, jsonl or
# arrow files, from kafka or from mqtt, as in
#     source: {{type: parquet, path: events/}}
source:
  type: generator
  keys: 10          # players
  rate: 10000       # events in a second of event time
  events: 200000    # then the job ends; leave it out for a stream without end
  late_share: 0.1   # some come late,
  late_by: 2s       # by so much at most

# Where results go. Paths are relative to the folder in which the job is started.
sinks:
  - {{type: parquet, path: results/}}

# Progress, state and queries: a job that is started again goes on from here. To begin anew, remove
# it, and the results too.
checkpoint: state/

trigger: continuous   # or 5s, available-now, batch

queries:
  - name: speed                     # per player, over the last 10 seconds, every 5 seconds
    select: [avg(v) AS mean, "quantile(v, 0.95) AS p95"]
    by: player
    window: sliding(10s, 5s)

  - name: top_speed
    select: [max(v) AS top]
    by: player
    where: v > 0
    window: tumbling(10s)

  - name: everyone                  # the same in SQL
    sql: >
      SELECT count(*) AS events, count_distinct(player) AS players FROM events
      GROUP BY window(ts, '5 seconds')

  - name: play                      # a pause of more than 2 seconds ends it
    sql: >
      SELECT player, count(*) AS steps FROM events
      GROUP BY player, session_window(ts, '2 seconds')

  - name: every_thousand            # a window for every thousand events of a player
    sql: SELECT player, avg(v) AS mean FROM events GROUP BY player, count_window(1000)
"""


def write(path: Path, force: bool) -> None:
    """Writes a job file; one that is there stays, unless it may be replaced."""
    if path.exists() and not force:
        raise JobError("the file is there already", given=path, hint="choose another, or --force")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(JOB.format(file=path.name), encoding="utf-8")
    except OSError as error:
        raise JobError(
            "the file cannot be written", given=path, hint=f"{error.strerror}".lower()
        ) from error
