"""The protocol of a tree of nodes: slices climb, plans come down. No I/O and no clock."""
