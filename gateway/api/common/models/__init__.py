"""Models in answers of several families: their names, facts and lists; and `keep_alive`, which says how long one stays loaded.

Every family may import it. The catalogue itself is the supervisor's.
"""
