"""The recipe llamacpp."""
