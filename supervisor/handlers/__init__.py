"""What each message means: one file per message family, one function per message, collected in `HANDLERS` or `handlers()`.

Only `supervisor/lifecycle/server.py` imports the tables; `requests.resolve_target` and `downloads.fetch` are shared.
A handler translates a message to calls of the scheduler or a registry. Scheduling decisions do not belong here.
"""
