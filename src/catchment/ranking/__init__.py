"""Quantiles, the most frequent values and first keys over many nodes without collecting them.

A node keeps the sorted values of a slice, or how often each occurs, and says what some of them are.
From that the root knows between which values a rank lies, and which values may be among the most
frequent; it asks for what is in doubt, in two rounds at most, and has the exact values. Rows and
questions go in, notes and values come out; nothing here reads a clock or opens a connection. What a
node says of the values that it holds stays true, so it may come late, twice, or overtaken by what
it said later.

| module | what it does |
|---|---|
| `groups` | which groups are asked about |
| `column`, `runs`, `counts` | sorted values and counts: what is wanted of them, what a node tells |
| `first_keys` | keys as values and their sums as counts, with the partials of each |
| `choice`, `leaf`, `leaf_log` | a local node: what it keeps back, how it answers, on disk |
| `search`, `frequent` | given what is known: between which values ranks lie, what is frequent |
| `root` | the root: takes what nodes say, asks, gives the values of windows |
| `message`, `ordered` | what both say to each other; values as integers |
"""
