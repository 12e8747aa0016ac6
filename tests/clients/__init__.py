"""Unmodified clients use a klog broker, and see no difference from Kafka."""
