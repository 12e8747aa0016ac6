"""Serves log directories of dead brokers and backups to Kafka's clients without changing a byte of them."""
