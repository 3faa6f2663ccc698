"""What each process runs on: the event loop, structured logs, garbage collection, its process context.

Any package may import these modules. They know nothing of models, requests or HTTP.
"""
