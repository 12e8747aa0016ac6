"""Checks, recovers and rebuilds what a broker would trust at its start."""
