"""Committed offsets: in memory, in records, and in transactions."""
