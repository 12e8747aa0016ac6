"""Consumer groups of the protocol of Kafka 4 (KIP-848): the coordinator assigns, members send heartbeats."""
