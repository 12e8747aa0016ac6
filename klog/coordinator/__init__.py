"""Coordinators of consumer groups and of transactions. Their state is kept in internal topics."""
