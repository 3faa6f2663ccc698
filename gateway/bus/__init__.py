"""The ZeroMQ sockets of a gateway process, and its session with the supervisor.

Resources get `SupervisorSession`. `server` makes `GatewayBus`, which passes what it receives to `MessageHandlers`.
There is no HTTP here, and no decision about a single request: these are in `requests`.
"""
