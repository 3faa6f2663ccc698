"""The worker process: its states, its requests, its sockets, and the monitors of its engine.

`workers.__main__` starts it; the jobs use `bus`. Nothing of one particular engine or recipe belongs here.
"""
