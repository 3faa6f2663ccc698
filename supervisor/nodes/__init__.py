"""The other nodes of the server: which there are, their processes, and which model files each of them has.

Node agents (:mod:`supervisor.node_agent`, which this folder does not import) start, watch and kill the processes there.
Decisions about models are the scheduler's. Only a server with a cluster imports this folder.
"""
