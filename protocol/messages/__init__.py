"""The messages between the supervisor, gateways, workers and jobs: one module for each subject.

Any package may import the message classes. A module here declares fields and says which process sends them to which. It
has no handlers, sockets or decisions.
"""
