"""The real server end to end, with real engines and tiny models: chat, downloads, keys, logs, memory.

Harmless tests use the fixture ``shared_server``. Documented examples go to compatibility/, killed processes to faults/.
"""
