"""llama.cpp's own routes: reranking, and the prompt caches of slots.

`dialect.py` has the routes.
Routes that llama-server copies from OpenAI belong in `api/openai`.
"""
