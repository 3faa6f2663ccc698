"""A day of requests on a cluster that exists on paper: the real scheduler, with virtual nodes, engines, gateways and clocks.

`make simulation` prints the tables of `docs/cluster.md`. Only the scheduler's processor time is real.
"""
