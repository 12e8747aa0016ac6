"""What a broker says to other brokers and to the controller."""
