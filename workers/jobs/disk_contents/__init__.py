"""What is below the server's directories: what it takes on the disk, whether something uses it, and its removal.

Only the job `disk_usage` uses it. It never leaves the cache directory, and of the hub's cache it only looks at repositories of our models.
"""
