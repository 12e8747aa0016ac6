"""Unmodified clients against a klog broker: they must not be able to tell it from Kafka."""
