"""Recipe `whispercpp`: recordings to text through whisper.cpp's HTTP server.

Only `workers.backends.registry` imports it. What other recipes need as well belongs in `workers.backends`.
"""
