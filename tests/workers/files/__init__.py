"""Headers of model files."""
