"""The memory that a llama-server needs."""
