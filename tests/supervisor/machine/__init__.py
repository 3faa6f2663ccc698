"""What is read about the machine."""
