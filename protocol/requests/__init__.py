"""Limits on what a request may ask of an engine, and the operator's rules for the requests of a model. Pure.

Gateways and workers check requests with it. What a message looks like belongs in `protocol/messages`.
"""
