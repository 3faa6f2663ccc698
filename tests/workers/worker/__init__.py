"""The worker process: its states, requests, cancellation and end, and its connection to the supervisor."""
