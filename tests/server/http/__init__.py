"""Requests that a real server refuses, and unusual connections: through proxies, very many, very large.

What HTTP allows is tested byte by byte in gateway/http/.
"""
