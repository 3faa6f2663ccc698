"""The engine's process, and the HTTP client that talks to it."""
