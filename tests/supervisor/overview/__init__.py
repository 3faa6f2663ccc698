"""The report about the running server, and what is remembered for it."""
