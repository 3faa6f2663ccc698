"""How the scheduler of a new supervisor begins: reports of the peers become its models, workers and slots. Pure.

`snapshots` joins the reports, `recovery_events` puts them back; of the scheduler, only the list of its events imports these.
How long a peer is waited for does not belong here: that is `supervisor.recovery`.
"""
