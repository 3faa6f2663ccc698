"""OpenAI's API: chat and text completions, embeddings, audio, images, models, and 501 for its unsupported routes.

`dialect.py` has the routes.
Lemonade's extra routes belong in `api/lemonade`.
"""
