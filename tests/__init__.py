"""All tests. The folders named like a package test that package; server/, compatibility/ and faults/ run the

whole server. What several folders need is in support/ and fake_engines/, and is imported as ``tests.support…``.
No test file imports another test file.
"""
