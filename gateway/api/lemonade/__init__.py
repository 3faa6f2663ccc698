"""Lemonade's routes, and those of its preview: load, unload, pull, downloads, delete, install, params, health, stats, system info.

`dialect.py` has the routes.
Each resource makes one call to the supervisor and writes its answer as JSON; what the call does is decided there.
"""
