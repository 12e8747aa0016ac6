"""Serves the logs of a repository to a broker as they were at a moment, without a copy of them."""
