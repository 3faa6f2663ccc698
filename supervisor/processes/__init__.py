"""The processes of this server: starting and killing them, and noticing their end or their silence.

`lifecycle.parts` makes all of these objects. What a process is started for is
decided elsewhere (`supervisor.scheduler`, handlers). The only messages here are about the life of the peers.
"""
