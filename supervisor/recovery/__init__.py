"""How a new supervisor takes over from one that died or was replaced.

``recovering.py`` is the supervisor's state until the peers have reported; :mod:`supervisor.scheduler.recovery` turns
the reports into the scheduler's state. It lasts two seconds at most. Later, only `other_versions.py` still does something. No handler of messages imports this folder.
"""
