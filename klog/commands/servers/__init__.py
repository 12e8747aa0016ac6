"""The commands that run a server until they are interrupted."""
