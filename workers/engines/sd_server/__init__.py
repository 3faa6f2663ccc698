"""Our `sd-server` over stable-diffusion-cpp-python: `python -m workers.engines.sd_server`.

The backend imports `flags`, which must not load a library.
"""
