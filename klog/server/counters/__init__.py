"""Counters of requests and topics."""
