"""The supervisor process: finds models, queues and schedules requests, starts and ends every other process.

May import `protocol` and the descriptors of `workers.backends`. It never touches a token or the content of a request
body. Nothing outside imports it; other processes talk to it over the bus. New code goes into one of the folders. Only
`internal_errors` is beside them, as in `gateway`, because all of them may import it.
"""
