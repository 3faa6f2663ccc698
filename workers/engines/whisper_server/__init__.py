"""Our `whisper-server` over the pywhispercpp wheel: `python -m workers.engines.whisper_server`.

The backend imports `flags`, which must not load a library.
"""
