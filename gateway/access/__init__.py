"""Access checks: API keys, the scope that each route needs, pages of foreign origins.

`gateway.middleware` uses the checks. API families import only `scopes`, and the log stream also `presented_key`. The
supervisor counts the usage of keys and knows their limits, so nothing about these is added here.
"""
