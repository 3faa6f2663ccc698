"""Mullama's API below `/api`: text generation, chat and embeddings, which Ollama's clients use too, and its model management; `/metrics`.

`dialect.py` has the routes, and the form of every error below `/api`; `generation` answers `generate` and `chat`.
Routes that only Ollama has belong in `api/ollama`; what both need belongs in `api/common`.
"""
