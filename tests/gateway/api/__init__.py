"""The routes of every API, in the application without sockets: what is sent to the supervisor, and what is answered.

What needs a real gateway process belongs in process/.
"""
