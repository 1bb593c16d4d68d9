"""One live page for jobs, in the browser: what runs, what it shares, what comes out, how it fares.

    WatchedJob --- look ---> Snapshot --- Feed ---> sections that changed --- SSE ---> the page
    (a tree, or a job on Spark)                                      queries, results: asked for

`watched.py` says what the page asks of a job; `tree_job.py` and `spark_job.py` answer. `feed.py`
looks while somebody watches and not otherwise, `guard.py` keeps strangers out, `server.py` has the
addresses, and `assets/` what the browser gets: plain files, without a build step.
"""
