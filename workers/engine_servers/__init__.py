"""Our own engine servers, one folder each: the library of an engine behind the engine's own command line and HTTP API.

Each is started by `python -m workers.engine_servers.<server>`, and reads its command line by the table of flags of its recipe in
`workers/backends`, which imports nothing from here. Nothing here imports the worker.
"""
