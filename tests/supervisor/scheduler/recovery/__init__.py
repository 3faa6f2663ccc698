"""What a new supervisor's scheduler makes of the reports of its peers."""
