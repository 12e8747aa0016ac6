"""The core of a Kafka client: connections, leader lookup, fetch, produce, offsets and the rule for retries.

The client commands use it, and so can every part of the broker that is a client of other brokers. It speaks
to any Kafka. Time comes in as a `Clock`, connections come in as a `Connect` function.
"""
