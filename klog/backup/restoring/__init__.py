"""Brings logs back from a repository: a plan for a moment, then directories that a broker opens."""
