"""Answers the questions of job files in this process, without Spark: the web log and the shop."""

import sys

import catchment as ct


def answers(path: str) -> ct.Results:
    """The results of all queries of a job file over its source, in one pass."""
    job = ct.load_job(path)
    return ct.run(job.source, job.build(), job.time, spark=False)


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word.endswith(".yaml")]
    for path in given or ["examples/web_log.yaml", "examples/retail.yaml"]:
        results = answers(path)
        for name in results:
            print(f"{path}: {name}")
            print(results.to_polars(name))
