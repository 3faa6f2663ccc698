"""Images that requests name by URL."""
