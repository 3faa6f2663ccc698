"""What several API families share: the `Dialect` object, routes that engines answer, streams, progress events, request fields, probes.

Every family may import it.
Nothing that only one family needs.
"""
