"""Error responses: status, headers and body, each API family's own form, and the wording of msgspec's messages.

Any folder may import `error_responses` and `error_formats`. `protocol/failures.py` declares what can fail.
"""
