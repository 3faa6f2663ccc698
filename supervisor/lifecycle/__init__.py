"""The supervisor as a whole, and its life: fork server, settings and start, watch over the runtime directory, hand-over, end.

`components.py` makes the components; `server_handlers.py`, `model_handlers.py` and `supervisor.py` give the handlers, recovery
and the rest what each needs. `supervisor/__main__.py` imports `fork_server`. No other folder of the supervisor imports this one, which puts
the others together. `supervisor.runtime` serves requests; nothing here handles a message of a peer.
"""
