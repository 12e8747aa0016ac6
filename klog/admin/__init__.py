"""What the client commands run against a cluster: reading topics, topics and configs, connection settings."""
