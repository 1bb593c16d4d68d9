"""Nodes of a tree as processes: disks, links and clocks around the protocol."""
