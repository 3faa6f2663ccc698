"""What an engine's answer becomes: events, usage, timings."""
