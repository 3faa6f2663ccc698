"""The ZeroMQ sockets of a gateway process, and its session with the supervisor: calls, messages, events, subscriptions, log lines.

`SupervisorSession` is what resources get; `GatewayBus` is made by `server`, and gives what it receives to `MessageHandlers`.
No HTTP here, and no decision about a single request: that is in `requests`.
"""
