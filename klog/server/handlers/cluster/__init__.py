"""Handlers of requests about brokers, replicas and the controller."""
