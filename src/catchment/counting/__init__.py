"""Count windows over many nodes without collecting events.

The root finds the event at which a window ends by asking nodes how many of their events are before
a place in the order of all events. Events and orders go in, notes and partials come out; nothing
here reads a clock or opens a connection. What a node says of its settled events stays true, so a
message may be lost, late, doubled or overtaken by another.

| module | what it does |
|---|---|
| `leaf_by_key`, `leaf_log` | a local node: keeps events by key, and keeps them on disk |
| `root_by_key`, `orders` | the root: takes notes, asks, gives windows that are full |
| `local`, `root` | the same for one key |
| `rank_bounds`, `node_view` | what the root knows: bounds of ranks, facts of each node |
| `forecast`, `scheme` | where the next edge is expected, and what nodes send unasked |
"""
