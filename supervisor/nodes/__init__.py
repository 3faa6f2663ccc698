"""The other nodes of the server: which there are, and which model files each of them has.

Decisions about nodes are the scheduler's; their processes belong to :mod:`supervisor.processes`.
"""
