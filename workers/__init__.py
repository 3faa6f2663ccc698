"""A worker: one process that owns one engine and carries its tokens to the gateways; also the engines of our own and the jobs.

The supervisor may import `workers.backends` and nothing else of this package. Nothing here may import `supervisor` or `gateway`.
Modules belong into one of the folders; only `__main__` (`python -m workers`) lies beside them.
"""
