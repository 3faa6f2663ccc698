"""Mullama's routes, and inference by Ollama's: what goes on the bus, exact answers, loading and unloading models.

Everything runs in the application without sockets; tests with engines and Ollama's client are in tests/compatibility.
"""
