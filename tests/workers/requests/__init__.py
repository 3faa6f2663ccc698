"""The requests of a worker: attempts, subscriptions, cancellation, progress."""
