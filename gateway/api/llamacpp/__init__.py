"""llama.cpp's own routes: completions, infill, tokens, templates, embeddings, reranking, properties, and prompt caches of slots.

`dialect.py` has the routes.
Routes that llama-server copies from OpenAI belong in `api/openai`.
"""
