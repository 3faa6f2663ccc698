"""The recipe sd-cpp."""
