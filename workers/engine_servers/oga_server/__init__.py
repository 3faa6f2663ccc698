"""Our server over ONNX Runtime GenAI: `python -m workers.engine_servers.oga_server`.

No other package imports it; only `model` loads the library.
"""
