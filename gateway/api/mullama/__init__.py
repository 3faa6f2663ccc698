"""Mullama's API below `/api`: generation, chat and embeddings, shared with Ollama; model management; `/metrics`.

`dialect.py` has the routes, and the form of every error below `/api`; `generation` answers `generate` and `chat`.
Routes that only Ollama has belong in `api/ollama`; what both need belongs in `api/common`.
"""
