"""Tests of the Responses API without a server: requests, events, stored forms. `golden/` has bodies and streams as files.

Nothing that needs an engine belongs here; that is in `tests/server`.
"""
