"""Our `llama-server` over the xllamacpp wheel: `python -m workers.engines.llama_server`.

Importing a module of it loads no library; llama.cpp is loaded when the server starts.
"""
