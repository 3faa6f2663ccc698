"""Recipes: descriptors, command lines, arguments, translated requests."""
