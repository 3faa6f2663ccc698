"""What a model is loaded with."""
