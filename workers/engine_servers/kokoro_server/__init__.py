"""Our server for Kokoro, a model for speech: `python -m workers.engine_servers.kokoro_server`.

Text becomes spoken words (`spoken_text`, `numbers`), these phonemes (`phonemizer` and what it uses), these samples (`model`), and these the
bytes of a file (`sound_encoder`). Importing the modules of text loads no library.
"""
