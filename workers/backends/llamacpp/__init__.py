"""Recipe `llamacpp`: GGUF models through llama.cpp's HTTP server.

Only `workers.backends.registry` imports it. What other recipes also need belongs in `workers.backends`.
"""
