"""Error responses: their status, headers and body, the form that each API family chooses, and the wording of msgspec's messages.

Any folder may import `error_responses` and `error_formats`. What can fail is declared in `protocol/failures.py`.
"""
