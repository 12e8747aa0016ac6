"""Handlers of requests that describe, create, grow and delete topics."""
