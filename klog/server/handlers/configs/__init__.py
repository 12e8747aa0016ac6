"""Handlers of requests about configs and loggers."""
