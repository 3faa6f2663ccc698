"""The supervisor as it runs: start, loop, log, effects."""
