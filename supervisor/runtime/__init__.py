"""The running supervisor: the object, its log and jobs, and how the scheduler's effects and the answers to calls leave it.

Handlers import `supervisor.Supervisor` and `jobs`. Nothing here decides which request or model runs:
`supervisor.scheduler` does. The other processes are in `supervisor.processes`, start and end in `supervisor.lifecycle`.
"""
