"""How a new supervisor takes over from one that died or was replaced.

``snapshots.py`` joins what the peers say, purely; ``recovering.py`` is the supervisor's state until that is done.  What
is taken over of the models is in :mod:`supervisor.scheduler.recovery`.  It lasts two seconds at most; later only
`other_versions.py` and `leftovers.py` still do something.
"""
