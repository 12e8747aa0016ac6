"""Finds, merges and compares the replicas of a partition offline: for exports, diffs, read-only brokers."""
