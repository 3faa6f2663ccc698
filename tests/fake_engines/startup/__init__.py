"""Stand-ins for llama-server that never become ready, become ready late, or die in the first computation."""
