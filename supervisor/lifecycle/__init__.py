"""The supervisor's own life: its fork server, settings and start, its watch over the runtime directory, hand-over and end.

`supervisor/__main__.py` imports `fork_server`. No other folder of the supervisor imports this one, which puts the
others together. `supervisor.runtime` serves requests; nothing here handles a message of a peer.
"""
