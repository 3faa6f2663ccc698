"""Another release that takes over from a running server, under load too, or cannot."""
