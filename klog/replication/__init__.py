"""Partitions as leader and follower, the requests that wait for them, and the timer that ends the waiting."""
