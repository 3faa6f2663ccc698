"""What runs between the bus and the scheduler: messages to handlers, decisions, their effects, answers to calls, jobs, the log.

Handlers are given these objects. Nothing here decides which request or model runs:
`supervisor.scheduler` does. The other processes are in `supervisor.processes`, start and end in `supervisor.lifecycle`.
"""
