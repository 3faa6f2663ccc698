"""Tests of ``gateway/access/``: keys, scopes, limits, and what callers without a key may do."""
