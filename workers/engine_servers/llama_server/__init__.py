"""Our `llama-server` over the xllamacpp wheel: `python -m workers.engine_servers.llama_server`.

Importing its modules loads no library. llama.cpp is loaded when the server starts.
"""
