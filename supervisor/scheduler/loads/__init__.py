"""Loads of models: which are begun now, what a dry run tells, and how far those under way are. Pure.

Which models must leave for another one is decided in `supervisor.scheduler.eviction`; what an engine's report changes is in
`worker_events` and `worker_deaths`; on which node a model is loaded, in `nodes/`.
"""
