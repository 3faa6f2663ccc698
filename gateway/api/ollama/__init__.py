"""Ollama's API, except for the routes that Mullama also has: other names for the same operations.

`dialect.py` has the routes.
`/api/generate`, `/api/chat` and `/api/embeddings` serve both families and are in `api/mullama`; what both need belongs in `api/common`.
"""
