"""The real server end to end, with real engines and tiny models, by subject: a folder each, and no test file beside them.

Harmless tests use the fixture ``shared_server``. Documented examples go to compatibility/, killed processes to faults/.
"""
