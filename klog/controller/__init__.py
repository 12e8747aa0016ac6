"""Elects leaders, moves partitions and replicas between states, and creates, grows and deletes topics.

All modules but `runner` are free of threads, clocks and sockets. They take an event,
and return or send writes to the tree and requests to brokers.
"""
