"""Decoding of what clients send."""
