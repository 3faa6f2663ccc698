"""What several API families share.

The `Dialect` object, declared routes and what answers them, operations for the OpenAPI document, request fields, what answers say
about a model, `keep_alive`, streams, probes.

`inference` has what routes answered by engines share. Every family may import this folder. What only one family needs does not belong here.
"""
