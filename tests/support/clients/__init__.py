"""Clients for tests: raw HTTP, bursts of requests, and the published packages, which are imported only when they are used."""
