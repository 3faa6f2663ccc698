"""The supervisor's own life: its fork server, settings and start, its watch over the runtime directory, hand-over and end.

`supervisor/__main__.py` imports `fork_server`; no other folder of the supervisor imports anything of this one, which puts them
together. What serves requests is in `supervisor.runtime`: nothing here handles a message of a peer.
"""
