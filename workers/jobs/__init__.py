"""Job processes for all that blocks: downloads, removals, installations, and queries to drivers and hubs.

Each entry point (`pull`, `remove`, `variants`, `install`, `probe`, `describe`) is run as `python -m workers.jobs.<name>`.
Nothing imports a job but its tests; what two jobs share lies beside them.
"""
