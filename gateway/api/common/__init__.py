"""What several API families share: the `Dialect` object, declared routes and what answers them, operations for the OpenAPI document, request fields, progress events, probes.

`inference` has what routes answered by engines share. `models` has what answers say about a model, and how long it
stays loaded. Every family may import this folder. What only one family needs does not belong here.
"""
