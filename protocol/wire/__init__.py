"""How messages look as bytes: frames of a socket, the envelope of a message, endpoints, and body formats.

Gateways, workers and the supervisor import these modules. A format belongs here if two processes must agree on it.
Message classes go to ``protocol/messages``; formats that only HTTP clients see go to ``gateway``.
"""
