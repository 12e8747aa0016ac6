"""Backups of logs: the log's own bytes, as immutable objects of a repository, and manifests that name
them."""
