"""The recipe `remote`: a model on another server with OpenAI's API, whose address a section of the configuration has.

`descriptor` says what such models serve, `backend` how they are asked. The connections are in `workers.engine`.
"""
