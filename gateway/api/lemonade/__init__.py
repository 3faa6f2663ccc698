"""Lemonade's routes, and those of its preview: load, unload, pull, delete, install, params, health, stats, system info.

`app.py` imports the resources.
Each resource makes one call to the supervisor and shapes its answer; what the call does is decided there.
"""
