"""Routes that engines answer: the resource, streamed answers, and the fields and media of requests of several families.

Every family may import it. The requests on the bus are in `gateway/requests`; what only one family sends or answers is the family's.
"""
