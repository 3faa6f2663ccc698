"""HTTP for one client connection: accepting, parsing, request bodies and their limits, responses, the request context, error bodies and `Retry-After`, hang-ups, WebSocket, middleware (API key, CORS, admission).

`server` makes the acceptor; the API families use `body_decoding`.
Nothing here knows a model, a worker or an API family.
"""
