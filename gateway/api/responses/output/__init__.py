"""A response: its output items, the object around them, and its two forms, whole and as a stream of events. Pure.

`create.py` and `background.py` write them. It may import `input`, which knows nothing of it.
"""
