"""The terminal: one verb a file, each a client of the HTTP API; ``serve`` hands over to the supervisor.

A verb's module is only imported when the verb is used, and imports what is heavy only when it needs it.
"""
