"""Routes for the operator of this server, which no other server has: the configuration, and reading it again.

`dialect.py` has the routes. A route that a published API has belongs to that API's family.
"""
