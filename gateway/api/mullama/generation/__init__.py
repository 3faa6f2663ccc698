"""`generate` and `chat`: their requests become OpenAI's, and OpenAI's answers become Mullama's and Ollama's.

`dialect.py` and `documentation.py` import the two resources. Everything except these and `generation_resource` is pure.
Embeddings and model management are beside this folder.
"""
