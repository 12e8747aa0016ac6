"""Backups of a live cluster over the wire, for those who cannot reach its disks."""
