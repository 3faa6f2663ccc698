"""What several families' answers say about models: names, facts, lists; and `keep_alive`, how long one stays loaded.

Every family may import it. The catalogue itself is the supervisor's.
"""
