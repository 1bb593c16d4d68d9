"""What a group keeps for its open windows: one file a shape of windows, behind one protocol.

`base.py` has the protocol, `states.py` says which state windows of a shape need.
"""
