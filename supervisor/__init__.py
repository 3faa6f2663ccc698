"""The supervisor process: finds models, queues and schedules requests, starts and ends every other process.

May import `protocol` and the descriptors of `workers.backends`. It never touches a token or a request body's content.
Nothing outside imports it; other processes talk to it over the bus. New code goes into one of the folders.
"""
