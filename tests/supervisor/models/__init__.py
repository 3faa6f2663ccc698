"""Catalogue, names, files, options and registration of models."""
