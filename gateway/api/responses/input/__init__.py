"""A request of the Responses API: its fields, items, content and tools, and the chat that they become. Pure.

`create.py` makes the chat request from it, and stores the items. Nothing about answers belongs here.
"""
