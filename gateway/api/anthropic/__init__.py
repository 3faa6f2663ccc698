"""Anthropic's Messages API: `messages`, streamed or not, and `messages/count_tokens`.

`dialect.py` has the routes and the form of errors; `message_request.py` declares requests, `chat_request.py` translates them,
`message_answer.py` and `message_events.py` answers.
The model list with Anthropic's fields belongs in `api/openai/models.py`: one route serves both.
"""
