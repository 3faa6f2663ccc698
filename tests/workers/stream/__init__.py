"""The translation of an engine's answer: events, usage, timings."""
