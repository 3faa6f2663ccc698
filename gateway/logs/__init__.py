"""The log stream: the `/logs/stream` WebSocket, and log records in the form that clients read.

The Lemonade family imports the resource. `protocol` writes log records, `bus` forwards them, and the supervisor numbers
and keeps them.
"""
