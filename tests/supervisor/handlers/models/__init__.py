"""Control messages about models, each with its handler."""
