"""Reads, searches and checks index files."""
