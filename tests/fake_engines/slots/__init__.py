"""Stand-ins for llama-server that cannot say which slots they have, or cannot save or restore the prompt cache of one."""
