"""A model on servers elsewhere: their addresses, the connections to each, and which of them gets a request.

Used by `workers.worker` in place of `workers.engine.process` and a single pool of connections. What such a server is asked
is in the recipe.
"""
