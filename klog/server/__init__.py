"""The broker: network, one handler module an API family, and the wiring of all rooms."""
