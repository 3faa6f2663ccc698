"""The running supervisor: the object, its bus and log, and how the scheduler's effects and the answers to calls leave it.

Handlers import `supervisor.Supervisor`. Nothing here decides which request or model runs: that is `supervisor.scheduler`.
The other processes are in `supervisor.processes`, start and end in `supervisor.lifecycle`.
"""
