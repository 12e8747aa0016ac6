"""Copies the partitions that this broker follows from their leaders: threads, connections and requests."""
