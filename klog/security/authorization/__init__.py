"""What a client may do: ACLs, decisions by them, and where they are kept."""
