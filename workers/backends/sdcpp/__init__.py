"""Recipe `sd-cpp`: images through stable-diffusion.cpp's HTTP server.

Only `workers.backends.registry` imports it. What other recipes also need belongs in `workers.backends`.
"""
