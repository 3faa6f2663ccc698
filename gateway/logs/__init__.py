"""The log stream: the `/logs/stream` WebSocket, its adapter, and log records in the form that clients read.

The Lemonade family imports the resource.
Writing log records is `protocol`'s, forwarding them is in `bus`; keeping them and numbering them is the supervisor's.
"""
