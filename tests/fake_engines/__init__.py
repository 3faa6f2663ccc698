"""Programs that stand in for llama-server, sd-server and flm, each of the first kind with one fault; started by name

as ``python -m tests.fake_engines.NAME``. Tests import ``llama_server.program`` and ``flm``. No tests here.
"""
