"""Configs of a running broker: where they come from, and those that change."""
