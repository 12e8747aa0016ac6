"""Versions that Kafka 3.9 serves and Kafka 4 does not (KIP-896), of requests that clients still send in them.

Some clients do not ask for the versions of a broker, or support no newer one. They use version 0: librdkafka
before 1.9 to list offsets for watermarks, kafka-go before 0.4.48 to create and delete topics, kafka-python
before 3.0 and the Java clients before 2.0 to describe log directories (those before 1.1 also configs). Sarama
chooses versions by the Kafka version that it is configured for. Consumers before Kafka 0.9 use OffsetCommit 0
and 1 and OffsetFetch 0.
"""
