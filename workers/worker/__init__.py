"""The worker process: its states, its requests, its sockets, and the monitors of its engine.

`python -m workers` runs `main`; the jobs use `bus`. Nothing of one particular engine or recipe belongs here.
"""
