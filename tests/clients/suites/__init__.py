"""The clients' own tests of groups and transactions, on klog or Kafka: `python -m tests.clients.suites`."""
