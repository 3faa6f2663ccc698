"""Lemonade's routes, and those of its preview: load, unload, pull, downloads, delete, install, params, health, stats, system info.

`dialect.py` has the routes. Each resource makes one call to the supervisor, which decides what to do, and writes the
answer as JSON.
"""
