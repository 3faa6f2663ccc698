"""Logs over HTTP: the `/logs/stream` WebSocket and its adapter, log records in the form that clients read, and the buffer for request log lines.

`app.py` imports the stream, `bus` the buffer.
Writing and forwarding log records is `protocol`'s; keeping them and numbering them is the supervisor's.
"""
