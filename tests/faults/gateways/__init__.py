"""Gateways that die or are stopped, and clients that hang up or read slowly."""
