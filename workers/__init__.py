"""A worker: one process that owns one engine and carries its tokens to the gateways; also our own engines and the jobs.

The supervisor may import `workers.backends` and nothing else of this package. Nothing here may import `supervisor` or
`gateway`. Modules belong in one of the folders; only `__main__` (`python -m workers`) is beside them.
"""
