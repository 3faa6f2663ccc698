"""Connections, the parser, bodies and their limits, responses."""
