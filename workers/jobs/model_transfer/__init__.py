"""How model files get from one node of the server to another: over HTTP, in jobs on both nodes.

Used by the jobs `fetch_files` and `share_files`. Which node fetches what from whom, the supervisor decides.
"""
