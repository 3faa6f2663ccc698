"""The log stream, and the log records of requests."""
