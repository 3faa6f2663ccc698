"""How a new supervisor takes over from one that died or was replaced.

``recovering.py`` is the supervisor's state until the peers have said what they do; :mod:`supervisor.scheduler.recovery` makes
the scheduler's state of that.  It lasts two seconds at most; later only `other_versions.py` and `leftovers.py` still do
something.  No handler of messages imports anything of this folder.
"""
