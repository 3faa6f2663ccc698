"""Models that do not load, that take turns where only one fits, or that too many requests wait for."""
