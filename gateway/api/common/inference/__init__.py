"""Routes answered by engines: the resource, streamed answers, and request fields and media of several families.

Every family may import it. The requests on the bus are in `gateway/requests`. What only one family sends or answers is
in that family.
"""
