"""Clusters of real processes: klog brokers, Kafka 3.9.1 brokers, and any mix of them, on one ZooKeeper."""
