"""The client's side of Kafka: finding brokers, reading assigned partitions, writing records, administration.

Works over the wire against any Kafka. No consumer group is needed or used.
"""
