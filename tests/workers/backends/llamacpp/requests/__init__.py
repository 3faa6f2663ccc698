"""Requests as llama-server takes them."""
