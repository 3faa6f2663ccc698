"""The worker process: its states, its bus, its engine's session, and the monitors of the engine.

`python -m workers` runs `main`; the jobs use `bus`. Its requests are in `workers.requests`. Nothing of a particular
engine or recipe belongs here.
"""
