"""What owns resources: the supervisor object, sockets, child processes, jobs, the log, startup and shutdown.

Handlers import `supervisor.Supervisor`, `jobs` and the registries. Nothing here decides which request or model runs:
that is `supervisor.scheduler`.
"""
