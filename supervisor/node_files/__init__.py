"""Model files on other nodes: which node has which, the copies that are being made, and their removal with their model.

Only a server with a cluster imports this folder. The jobs that send and receive the files are in `workers/jobs/model_transfer`.
On which node a model is loaded is the scheduler's decision.
"""
