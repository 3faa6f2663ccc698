"""Recipe `whispercpp`: transcription of recordings through whisper.cpp's HTTP server.

Only `workers.backends.registry` imports it. What other recipes also need belongs in `workers.backends`.
"""
