"""Protocol: frames, headers and messages of Kafka's wire protocol, and a blocking client channel."""
