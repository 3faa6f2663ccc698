"""The limits of API keys: how many requests and tokens a minute, how many requests at once.

`token_bucket` and `key_limits` are pure; `admission` asks them for each request before the scheduler gets it. The supervisor
counts because requests of one key come through several gateway processes. Keys themselves are unknown here: a gateway
sends a key's name and limits. What a model can take is the scheduler's business and not added here.
"""
