"""One inference request from admission to its end: reservation, admission, exchange, attempts and retries, inbox, spool file.

The API families use `answer_stream.complete`, `answer_stream.stream` and `InferenceRequest`; `bus` uses the exchange.
`request_media` has images and recordings decoded first. Decisions (`retry`, `inbox`) are pure. No ZeroMQ sockets and no
HTTP framing here.
"""
