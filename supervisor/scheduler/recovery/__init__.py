"""How the scheduler of a new supervisor begins: reports of the peers become its models, workers and slots. Pure.

`snapshots` joins the reports, `recovery_events` puts them back. Outside, `supervisor.recovery` and the handlers of peers import these.
How long a peer is waited for does not belong here: that is `supervisor.recovery`.
"""
