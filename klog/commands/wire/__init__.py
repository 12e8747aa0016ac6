"""What the commands that talk to a cluster share: connection options, record formats, tables."""
