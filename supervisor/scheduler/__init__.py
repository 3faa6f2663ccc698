"""The scheduler: events in, effects out. Pure: no socket, process, log or clock of its own.

Outside, import `scheduler.Scheduler`, `state.SchedulerLimits`, `state.ModelTarget`, the effects and the states.
The tables and policies (`worker_lifecycle`, `eviction`, `backoff`) may be read alone. Add no I/O and no import of
other folders of the supervisor here.
"""
