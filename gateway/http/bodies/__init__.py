"""Bodies of requests: where one ends, its limits, the memory of all bodies, and decoding with positions of mistakes.

API families import `body_decoding`, and `null_fields` to declare types. `connections`, `server`, `requests` and
`fetching` use the rest. Nothing here knows the fields of a body: those belong to the API families.
"""
