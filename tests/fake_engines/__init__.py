"""Programs that stand in for llama-server, sd-server and flm; those of llama-server have one fault each, in a folder

for when it shows. Tests import ``llama_server.program``, which starts them by their file's name, and ``flm``. No tests here.
"""
