"""A model on servers elsewhere."""
