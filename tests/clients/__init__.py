"""Unmodified clients of several APIs, each with all of its features, from text to errors, against a real server.

The ``openai`` and ``anthropic`` packages are used by the tests of their APIs in ``tests/server``.
"""
