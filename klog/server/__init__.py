"""The broker: network, one handler module for each API family, and the wiring of all packages."""
