"""What outlives a supervisor."""
