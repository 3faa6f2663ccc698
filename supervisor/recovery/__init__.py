"""How a new supervisor takes over from one that died or was replaced.

``recovering.py`` is the supervisor's state until the peers have said what they do.  :mod:`supervisor.scheduler.snapshots` joins
that, and :mod:`supervisor.scheduler.recovery` is what is taken over of the models.  It lasts two seconds at most; later only
`other_versions.py` and `leftovers.py` still do something.
"""
