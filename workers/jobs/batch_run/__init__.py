"""How batches are worked off: their lines, how many are sent at once, what is tried again, and where results go.

``workers/jobs/run_batches.py`` is the process. It sends each line as an HTTP request to this server, so nothing here knows an
engine, an API or the bus.
"""
