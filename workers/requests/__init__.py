"""The requests of one worker: attempts from the grant to their end, subscriptions, cancellation, events, progress.

`workers.worker` uses `worker_requests`, and provides what `interfaces` asks for; nothing here imports it. Nothing here
starts an engine or changes the state of the worker process.
"""
