"""The replicas of a model: what they share, how many there are, and which one gets a request. Pure.

`scaling` and `prefixes` can be read on their own. What is known of one replica is in `supervisor.scheduler.scheduled_model`.
The order of the requests that wait is not decided here (`queue/`).
"""
