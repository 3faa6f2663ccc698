"""Clients' files and batches, as gateways and the job that works batches off keep them in the state directory.

Each file has one kind of writer, and is replaced whole or appended to. Nothing here knows HTTP, the bus or an engine.
"""
