"""Our own engine servers: a maker's library behind the maker's command line and HTTP, one folder a server.

Each is started by `python -m workers.engines.<server>`. Backends may import a server's `flags`, never what loads its library.
Nothing here imports the worker.
"""
