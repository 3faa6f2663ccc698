"""Processes on the bus: their Hello, their silence, their end."""
