"""The overview of the running server: what each key may see of it, and the stream of its changes.

The supervisor makes one report for all followers of a process; `gateway/api/operator/overview.py` has the routes. Nothing
happens here while no client follows. `view.py` is imported by the command line, so it imports no library of the server.
"""
