"""Stand-ins for llama-server that cannot list their slots, or cannot save or restore the prompt cache of a slot."""
