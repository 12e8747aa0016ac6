"""Requests between controller and brokers that Kafka 4 dropped, in the
versions of a Kafka 3.9 ZooKeeper cluster.
"""
