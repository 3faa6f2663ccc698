"""Tests of Anthropic's Messages API without a server. `golden/` has requests with the bodies that engines get, and chunks with the events."""
