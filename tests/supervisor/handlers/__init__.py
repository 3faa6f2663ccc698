"""Control messages, each with its handler."""
