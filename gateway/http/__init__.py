"""HTTP for one client: `connections`, the `bodies` of requests, `errors` and their forms, and what several of them need.

This folder has the context of a request, hang-ups, the router, headers of streams and about limits, and the counts that
become metrics. Nothing here knows a model, a worker or an API family, and nothing here imports another folder of `gateway`.
"""
