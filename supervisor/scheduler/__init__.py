"""The scheduler: events in, effects out. Pure: no socket, process, log or clock of its own.

Outside, import `scheduler.Scheduler` for the events, `view` for questions, `inputs`, `policy`, and the effects. The state
is this folder's own (`tests/test_architecture.py`). The tables and policies (`model_states`, `worker_states`, `eviction`,
`backoff`) can be read on their own. `Scheduler` has a method for each event, and holds the state; what an event changes is
a function over the state (`client_events`, `worker_events`, `worker_deaths`). A model is changed in `model_changes`, and
in `recovery/` when it is taken over; `known_models` has what calls ask for. `nodes/` and `replicas/` decide where engines run and how many.
`loads/` decides about loads, `memory/` counts memory, `queue/` has the requests that wait. Add no I/O and no import of other
folders of the supervisor but `metrics`.
"""
