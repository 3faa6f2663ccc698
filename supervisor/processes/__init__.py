"""The processes of this server: starting and killing them, and noticing their end.

Only this folder, the keeper and `lifecycle` know what pids and socket files mean. `placement.py` declares what the rest
may ask of a worker or a job, and `local_placement.py` does it on this machine. `lifecycle.components` makes all of these
objects. What a process is started for is decided elsewhere (`supervisor.scheduler`, handlers). The only messages here
are about the life of the peers.
"""
