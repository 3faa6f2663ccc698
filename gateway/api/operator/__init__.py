"""Routes for this server's operator that no other server has: the configuration, reloading it, and the API keys.

`dialect.py` has the routes. A route of a published API belongs to that API's family.
"""
