"""HTTP for one client connection: parsing, bodies and their limits, responses, errors, hang-ups, the counts of requests that become metrics.

`server` accepts the connections; the API families use `body_decoding`.
Nothing here knows a model, a worker or an API family, and nothing here imports another folder of `gateway`.
"""
