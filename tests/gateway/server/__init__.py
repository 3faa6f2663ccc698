"""gunicorn's master, and how connections are accepted."""
