"""The supervisor's own life: its fork server, settings and start, its watch over the runtime directory, hand-over and end.

`supervisor/__main__.py` imports `fork_server`; handlers import `keeper_client`, the reload `startup`. What serves requests is in
`supervisor.runtime`: nothing here handles a message of a peer.
"""
