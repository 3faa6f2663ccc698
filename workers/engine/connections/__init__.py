"""The HTTP connections to an engine: opened ahead of need and kept, in the clear or encrypted, each with one request at a time.

They know no recipe and no process. `exchange` is what others give to a connection and get from it.
"""
