"""Replicas: how many there are, and which one gets a request."""
