"""Random requests that schemathesis makes from ``/openapi.json``, against a real server with tiny models: ``python -m tests.fuzz``."""
