"""OpenAI's API: chat and text completions, embeddings, audio, images, the model list, and answers for its routes that are not supported.

`app.py` imports the resources.
Lemonade's extra routes belong in `api/lemonade`.
"""
