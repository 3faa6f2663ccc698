"""Sockets, calls, and the connection to the supervisor."""
