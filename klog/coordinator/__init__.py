"""Coordinators: groups of consumers, whose state is kept in internal topics."""
