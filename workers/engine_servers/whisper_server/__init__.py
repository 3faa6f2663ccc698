"""Our `whisper-server` over the pywhispercpp wheel: `python -m workers.engine_servers.whisper_server`.

Importing its modules loads no library: `transcriber` loads the library, when the server starts.
"""
