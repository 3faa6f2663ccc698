"""llama.cpp's own routes: reranking, and the prompt caches of slots.

`app.py` imports the resources.
Routes that llama-server copies from OpenAI belong in `api/openai`.
"""
