"""Requests between controller and brokers that Kafka 4 dropped, in the form that a Kafka 3.9 ZooKeeper
cluster uses.
"""
