"""What servers and clients of other protocols share: addresses, certificates, limits, messages.

Nodes of a tree, the page and the sources that receive by HTTP listen at ports. Where they may
listen, and what somebody may cost who has not shown a token, is decided here for all of them.
"""
