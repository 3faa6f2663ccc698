"""Access checks: API keys, the scope that each route needs, pages of foreign origins, how many clients may stay connected.

`gateway.middleware` uses the checks. API families import only `scopes`, WebSockets also `presented_key`, and routes whose
clients stay connected `connection_places`. The supervisor counts the usage of keys and knows their limits, so nothing about
these is added here.
"""
