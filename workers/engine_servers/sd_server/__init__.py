"""Our `sd-server` over stable-diffusion-cpp-python: `python -m workers.engine_servers.sd_server`.

Importing its modules loads no library: `library` loads the package, when the server starts.
"""
