"""The worker process: its life cycle, its requests, its leases, its sockets, and the watchdog over its engine.

`workers.__main__` starts it; the jobs use `bus`. Nothing of one particular engine or recipe belongs here.
"""
