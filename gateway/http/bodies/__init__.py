"""Bodies of requests: where one ends on the wire, its limits, the memory that all take, and decoding with a position for each mistake.

API families import `body_decoding`, and `null_fields` to declare types; `connections`, `server`, `requests` and `fetching` use the rest.
Add nothing that knows the fields of a body: those belong to the API families.
"""
