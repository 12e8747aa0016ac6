"""Puts the parts of a broker together, and what a broker does before it serves and when it stops."""
