"""HTTP for one client connection: parsing, request bodies and their limits, responses, the request context, error bodies and `Retry-After`, hang-ups, middleware (API key, CORS, admission).

`server` accepts the connections; the API families use `body_decoding`.
Nothing here knows a model, a worker or an API family.
"""
