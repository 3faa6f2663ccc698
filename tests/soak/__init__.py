"""``python -m tests.soak``: a real server under random requests and random faults, with an oracle that knows every text.

Not collected by pytest. CI runs it for two minutes, a release for thirty. A seed repeats the choices, though not the timing.
"""
