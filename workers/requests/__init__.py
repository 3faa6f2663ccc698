"""The requests of one worker: attempts from the grant to their end, subscriptions, cancellation, events, progress.

`workers.worker` uses `worker_requests`, and `snapshot` there reads attempts. Nothing here starts an engine or changes the
state of the worker process.
"""
