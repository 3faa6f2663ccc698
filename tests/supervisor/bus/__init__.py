"""The supervisor as it runs: messages, log, effects."""
