"""Engines that die, hang or break a connection: what the client of each API is told, and how the engine is replaced."""
