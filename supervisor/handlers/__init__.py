"""What each message means: one file per message family, one function per message, collected in `HANDLERS` or `handlers()`.

Those about models are in `models/`. Only `supervisor/lifecycle/server.py` imports the tables; `requests.resolve_target`
is shared. A handler translates a message into calls of the scheduler or a registry. Scheduling decisions do not belong
here.
"""
