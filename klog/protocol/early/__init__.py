"""Versions that Kafka 3.9 speaks and Kafka 4 does not (KIP-896), of requests whose clients name them.

Not every client asks which versions a broker has, or has a newer one: Sarama takes versions from the Kafka
version that it is configured for, kafka-go before 0.4.48 creates and deletes topics in version 0,
kafka-python before 3.0 and the Java clients before 2.0 describe log directories (those before 1.1 configs,
too) in version 0.
"""
