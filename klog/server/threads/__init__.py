"""Threads that run drivers and timers."""
