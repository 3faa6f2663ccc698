"""The HTTP gateway and the command line.

Each gateway process is a gunicorn worker: it speaks HTTP to clients and ZeroMQ to the supervisor and the workers. Entry
points: `python -m gateway` (the server) and `gateway.cli.main` (the terminal); `app.py` has every route,
`middleware.py` has what runs before each request; `waker.py` wakes one greenlet from the hub, `threads.py` runs a
function beside them, `internal_errors.py` counts our own exceptions. Nothing here chooses a model, a worker or an
eviction: the supervisor does. May only import `protocol`.
"""
