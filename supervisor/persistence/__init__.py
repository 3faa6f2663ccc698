"""What outlives a supervisor: files of its state, written in a thread, and journals and records in memory that the keeper holds.

Any folder of the supervisor may import it; it imports none of them. What is in a file or journal is declared by its owner.
"""
