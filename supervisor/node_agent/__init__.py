"""The node agent, ``python -m supervisor.node_agent``: our process on each node but the head, and the parent of the others there.

It does there what the keeper and the supervisor's placement do on the head: it starts, watches and kills workers and
jobs, as the supervisor says. It decides nothing about models. Of the other folders of the supervisor it imports those of
processes and of the machine, and what an agent says of its node.
"""
