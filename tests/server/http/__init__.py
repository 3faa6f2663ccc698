"""Requests that a real server refuses, and connections that are unusual: through proxies, very many, very large.

What HTTP allows is tested byte by byte in gateway/http/.
"""
