"""``python -m tests.soak``: a real server under random requests and random faults, with an oracle that knows every text.

Not collected by pytest. A seed repeats the choices, though not the timing. ``--nodes 2`` is the part over several machines.
"""
