"""Another release takes over from a running server, also under load, or fails to."""
