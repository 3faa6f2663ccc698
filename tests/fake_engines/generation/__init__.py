"""Stand-ins for llama-server that are slow, break off or die while they answer."""
