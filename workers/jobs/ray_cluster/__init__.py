"""The job that is the driver of a Ray cluster: ``python -m workers.jobs.ray_cluster``.

Ray tells which machines there are, and starts one actor on each; the actor starts our node agent there, and ends with it.
Everything else goes over our own bus. If this job or Ray's head ends, agents and streams go on; the next job finds the
actors by their names. Only this folder imports ray, and only `cluster.py` in it. `agent_actor.py` is sent to the other
nodes as code, and therefore imports nothing but the standard library.
"""
