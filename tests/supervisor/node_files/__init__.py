"""Model files on other nodes."""
