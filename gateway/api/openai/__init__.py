"""OpenAI's API: chat and text completions, embeddings, audio, images, the model list, and 501 for its routes that are not supported.

`dialect.py` has the routes.
Lemonade's extra routes belong in `api/lemonade`.
"""
