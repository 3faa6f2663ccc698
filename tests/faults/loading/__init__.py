"""Models that do not load, that take turns where one fits, or for which too many requests wait."""
