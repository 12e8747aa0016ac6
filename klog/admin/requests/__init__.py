"""The requests of administration that are sent to any Kafka, one module for each kind."""
