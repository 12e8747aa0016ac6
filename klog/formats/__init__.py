"""Formats: every file of a Kafka log directory, defined once; bytes and their meaning, nothing opened."""
