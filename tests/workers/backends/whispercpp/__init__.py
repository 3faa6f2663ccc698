"""The recipe whispercpp."""
