"""Our own engine servers, one folder each: the library of an engine behind the engine's own command line and HTTP API.

Each is started by `python -m workers.engines.<server>`. Backends may import a server's `flags`, but never anything that
loads its library. Nothing here imports the worker.
"""
