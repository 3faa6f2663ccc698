"""What each key sees of the running server, and the stream of its changes."""
