"""The HTTP connections to an engine."""
