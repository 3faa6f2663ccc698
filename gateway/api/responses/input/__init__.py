"""A request of the Responses API: its fields, its items with their content, its tools, and the chat that they become. Pure.

`create.py` makes the chat's request of it, and stores the items. Add nothing about answers here.
"""
