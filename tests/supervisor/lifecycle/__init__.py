"""The start of a supervisor, and what its errors say."""
