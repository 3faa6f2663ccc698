"""Engine servers of our own: small programs that put an HTTP server in front of a library."""
