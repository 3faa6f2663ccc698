"""What several API families share: the `Dialect` object, declared routes and what answers them, operations for the OpenAPI document, request fields, progress events, probes.

`inference` has what routes share that engines answer, `models` what answers say of a model and how long it stays.
Every family may import it.
Nothing that only one family needs.
"""
