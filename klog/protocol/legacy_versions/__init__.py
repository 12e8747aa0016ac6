"""Versions that Kafka 3.9 speaks and Kafka 4 does not (KIP-896), of requests whose clients name them.

Not every client asks which versions a broker has, or has a newer one. Version 0 is what librdkafka before 1.9
takes to list offsets for watermarks, kafka-go before 0.4.48 to create and delete topics, kafka-python before
3.0 and the Java clients before 2.0 to describe log directories (those before 1.1 configs, too). Sarama takes
versions from the Kafka version that it is configured for.
"""
