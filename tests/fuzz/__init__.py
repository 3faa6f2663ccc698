"""Random requests made of ``/openapi.json`` by schemathesis, against a real server with tiny models: ``python -m tests.fuzz``."""
