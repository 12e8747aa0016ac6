"""One history of requests, played to klog and to Kafka 3.9.1: every answer is compared."""
