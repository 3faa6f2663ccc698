"""``python -m tests.benchmarks``: the server measured against the engine alone. Not collected by pytest.

Nothing outside imports from here; library code of the tests belongs in support/.
"""
