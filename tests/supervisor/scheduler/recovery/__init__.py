"""How a new supervisor's scheduler uses the reports of its peers."""
