"""The routes of every API, through the application without sockets: what is sent to the supervisor, what is answered.

What needs a real gateway process belongs in process/.
"""
