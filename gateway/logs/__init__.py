"""Logs over HTTP, the buffer for request log lines, and the counts of requests that become metrics.

The stream has the `/logs/stream` WebSocket, its adapter, and log records in the form that clients read.
`app.py` imports the stream, `bus` the buffer and the counts, `http` the counts.
Writing and forwarding log records is `protocol`'s; keeping them and numbering them is the supervisor's.
"""
