"""The messages between the supervisor, gateways, workers and jobs: one module for each subject.

Any package may import the message classes. A module here declares fields and states who sends them to whom.
No handler, no socket and no decision is added here.
"""
