"""Models that do not load, models that take turns because only one fits, and models that too many requests wait for."""
