"""What each message means: a class per message family, with a table of its functions, one per message.

A class is given the components that it needs when it is made (`server_handlers.py`, `model_handlers.py` and
`supervisor.py` in `supervisor/lifecycle`), keeps them private, and can touch nothing else. Those about models are in `models/`.
`model_targets` finds the model that a request or a load means. A handler translates a message into calls of the
scheduler or a registry. Scheduling decisions do not belong here.
"""
