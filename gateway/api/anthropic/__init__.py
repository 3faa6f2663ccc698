"""Anthropic's Messages API: `messages`, streamed or not, and `messages/count_tokens`.

`dialect.py` has the routes and the form of errors; `chat_body.py` translates requests, `message_answer.py` and `message_events.py` answers.
The model list with Anthropic's fields belongs in `api/openai/models.py`: one route serves both.
"""
