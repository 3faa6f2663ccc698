"""Programs that stand in for llama-server, sd-server and flm. Each stand-in for llama-server has one fault; the folder

says when it shows. Tests import ``llama_server.program``, which starts them by their file's name, and ``flm``. No tests here.
"""
