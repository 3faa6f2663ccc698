"""How the scheduler of a new supervisor begins: reports of the peers become its models, workers and slots. Pure.

`joined_snapshots` joins the reports, `recovery_events` restores them. Of the scheduler, only `scheduler.py` imports
these. How long to wait for a peer does not belong here, but in `supervisor.recovery`.
"""
