"""User-defined windows over all nodes without collecting events.

Nodes send the events that mark the beginning or the end of a window, and keep the others. When the
root has all marks before a time, it tells where they are; nodes cut their events there, and send
the slices in between, which the root puts in between the marks. That is a *round*. Events and
orders go in, notes and slices come out; nothing here reads a clock or opens a connection.

| module | what it does |
|---|---|
| `edges` | behind which mark each event stands |
| `choice` | whether events between marks are kept, or climb |
| `message` | what the root tells, and what nodes answer |
| `rows` | rows of notes as bytes, and which events are marks |
| `leaf`, `leaf_log` | a local node: what it keeps, how it cuts, on disk |
| `merging` | a node in between: answers of several nodes as one |
| `root` | the root: rounds, who has answered, where slices belong |
"""
