"""Kafka's wire protocol: frames, headers and messages, and a blocking client channel."""
