"""Clients of several APIs, unmodified, each with all of its features against a real server: text to errors.

The ``openai`` and ``anthropic`` packages are used by the tests of their APIs in ``tests/server``.
"""
