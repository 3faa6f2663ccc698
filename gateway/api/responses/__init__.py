"""OpenAI's Responses API: requests become chat completions, chat completions become responses and their events.

`dialect.py` has the routes. `input` reads requests, `output` writes responses, and the files beside them answer the
routes and store. Everything except `create.py`, `conversation.py`, `input_tokens.py`, `background.py`, `store_client.py` and
`stored.py` is pure. Nothing outside imports from here. Routes of OpenAI's other endpoints belong in `api/openai`.
"""
