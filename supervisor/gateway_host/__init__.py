"""The host of gateways on another node than the supervisor: ``lemonbus gateway``.

It connects to the supervisor, gets the settings and keys of the server, and starts gunicorn with the same gateway as on the
head. It is a process of its own; no other folder imports this one.
"""
