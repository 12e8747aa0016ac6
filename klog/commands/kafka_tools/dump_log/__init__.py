"""Prints files of log directories as `kafka-dump-log` of Kafka 3.9 does."""
