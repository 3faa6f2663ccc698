"""What several API families share: request fields, progress events, and the probes `/live` and `/health`.

Every family may import it.
Nothing that only one family needs.
"""
