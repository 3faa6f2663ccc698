"""The worker process: its states and its end, its engine, and its connection to the supervisor."""
