"""The nodes of the server: which one a model is loaded on, and what follows when one joins, drains or is gone. Pure.

`node_choice` compares what a load would take on each node, and can be read on its own. What is known of one node is in
`supervisor.scheduler.scheduler_node`, because all parts of the scheduler use it. Not for loads on a chosen node (`loads/`).
"""
