"""A generation's bytes on their way from the engine to the gateways: events, whole responses, timing, batching, the outbox.

Pure, except `read_batching`, which reads sockets that others own. Nothing here starts a process or knows a recipe.
"""
