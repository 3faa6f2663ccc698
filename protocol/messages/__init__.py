"""The messages between the supervisor, gateways, workers and jobs: one module for each subject.

Any package may import the message classes. A module here declares fields and states which process sends them to which.
No handler, no socket and no decision is added here.
"""
