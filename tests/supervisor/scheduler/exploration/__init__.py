"""All histories of small worlds: whatever order events come in, and whatever fails at whatever point."""
