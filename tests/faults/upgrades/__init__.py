"""Another release that takes over from a running server, also under load, or cannot."""
