"""`generate` and `chat`: their requests become OpenAI's, and OpenAI's answers become Mullama's and Ollama's.

`dialect.py` and `documentation.py` import the two resources. Everything but these and `generation_resource` is pure.
Embeddings and what manages models lie beside this folder.
"""
