"""Memory as the scheduler counts it: what was read, whether another model fits, and what happens when it is short. Pure.

`memory_events` are events; `fitting` has the arithmetic and may be read on its own. Which model is evicted is decided in
`supervisor.scheduler.eviction`; what reads the memory is in `supervisor.machine`.
"""
