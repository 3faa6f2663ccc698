"""The routes of every API, in the application without sockets: the messages to the supervisor, and the answers.

What needs a real gateway process belongs in process/.
"""
