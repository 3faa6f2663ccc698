"""Routes for the operator of this server, which no other server has: the configuration, reading it again, and the API keys.

`dialect.py` has the routes. A route that a published API has belongs to that API's family.
"""
