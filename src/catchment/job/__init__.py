"""The job file: YAML (or JSON) that says what to compute.

    name: soccer
    lateness: 2s
    queries:
      - name: speed
        select: [avg(v) AS mean, "quantile(v, 0.95) AS p95"]
        by: player
        where: v > 0
        window: sliding(10s, 5s)
      - name: total
        sql: SELECT sum(v) FROM events GROUP BY window(ts, '1 minute')

A section is a pydantic model and one field of `JobModel`. Values that a query checks itself
(durations, names, conditions) pass through unchecked, so the same mistake gives the same error as
in Python.
"""

from catchment.job.loading import ExaminedJob, Mistake, examine, load_job
from catchment.job.model import JobModel, QuerySection, job_schema

__all__ = [
    "ExaminedJob",
    "JobModel",
    "Mistake",
    "QuerySection",
    "examine",
    "job_schema",
    "load_job",
]
