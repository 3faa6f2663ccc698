"""What owns resources: the supervisor object, sockets, the log, startup and shutdown. The other processes are in `supervisor.processes`.

Handlers import `supervisor.Supervisor`. Nothing here decides which request or model runs:
that is `supervisor.scheduler`.
"""
