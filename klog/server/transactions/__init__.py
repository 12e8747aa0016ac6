"""What a broker does for transactions beside their coordinator: verification and markers."""
