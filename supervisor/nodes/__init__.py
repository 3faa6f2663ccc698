"""The other nodes of the server: which there are, their processes and devices, and the gateways there.

Node agents (:mod:`supervisor.node_agent`, which this folder does not import) start, watch and kill the processes there.
Decisions about models are the scheduler's; the model files there are in :mod:`supervisor.node_files`. Only a server with a
cluster imports this folder.
"""
