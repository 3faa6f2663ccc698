"""How a new supervisor takes over from one that died or was replaced.

``takeover.py`` is the supervisor's state until the peers have reported; :mod:`supervisor.scheduler.recovery` turns
the reports into the scheduler's state. It lasts two seconds at most. No handler of messages imports this folder, and
it imports none.
"""
