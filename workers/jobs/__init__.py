"""Job processes for everything that blocks: downloads, removals, installations, and queries to drivers and hubs.

Each entry point (`pull`, `remove`, `variants`, `install`, `probe`, `describe`, `list_remotes`, `receive_files`, `share_files`) is
run as `python -m workers.jobs.<name>`. Only its tests import a job. What two jobs share is beside them.
"""
