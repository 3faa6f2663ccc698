"""Stand-ins for llama-server that do not get ready, or late, or die in the first computation."""
