"""Who may do what: API keys, the scope that each route needs, pages of foreign origins.

`gateway.http.middleware` uses the checks; API families import `scopes` alone, the log stream also `presented_key`. What a request costs and which limits a key
has reached is the supervisor's business and not added here.
"""
