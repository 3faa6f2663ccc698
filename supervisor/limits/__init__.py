"""The limits of API keys: requests a minute, tokens a minute, and concurrent requests.

`token_bucket` and `rate_limiter` are pure. `key_admission` asks them for each request before the scheduler gets it. The
supervisor counts because requests of one key come through several gateway processes. The keys themselves are unknown
here: a gateway sends a key's name and limits. What a model can take is the scheduler's business.
"""
