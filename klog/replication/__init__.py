"""Partitions as leader and follower, the operations that wait for them, and the timer of their timeouts."""
