"""One inference request from admission to its end: admission, exchange, attempts and retries, inbox, spool file.

The API families use `inference.complete`, `inference.stream` and `InferenceRequest`; `bus` uses the exchange.
Decisions (`retry`, `inbox`) are pure. No ZeroMQ sockets and no HTTP framing here.
"""
