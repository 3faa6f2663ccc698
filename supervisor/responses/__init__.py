"""The responses that the server keeps in memory for OpenAI's Responses API: a bounded store, without sockets and clock.

Only `supervisor/handlers/responses.py` and `supervisor/__main__.py` use it. What is in a response is the gateway's business.
"""
