"""Count windows over many nodes without collecting events: where windows end is found by counting.

All of it is data in, messages out: no I/O, no clock. What a node says of its settled events stays
true, so a message may be lost, late, doubled or overtaken by another.
"""
