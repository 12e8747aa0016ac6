"""Moves partitions between brokers and log directories: what to move where (plans), and the moving itself."""
