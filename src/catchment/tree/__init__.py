"""The protocol of a tree of nodes, without connections and without a clock.

A node reads events (`local`), merges what its children send (`relay`) or assembles windows
(`root`). Messages with partials go up to the parent, the charter with the plans comes down. The
part of a node that others talk to is `member`.
"""
