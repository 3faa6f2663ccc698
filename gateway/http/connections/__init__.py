"""A client's connection: its socket, the one parser of requests (llhttp), the writer of responses, and the queue of new connections.

`server` makes them. Nothing here knows what an application answers, except for failures before and after it.
"""
