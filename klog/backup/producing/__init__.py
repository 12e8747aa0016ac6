"""Restores into a running cluster: what a reader would see is produced anew, with offsets of its own."""
