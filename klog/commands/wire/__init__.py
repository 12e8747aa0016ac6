"""What the commands that talk to a cluster share: connection options, formats of records, tables."""
