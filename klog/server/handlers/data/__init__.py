"""Handlers of requests that write, read, find and delete records."""
