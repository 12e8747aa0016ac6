"""Metrics for Prometheus, under the names that Kafka's dashboards use (those of the JMX exporter's rules).

All values are counted anyway, and read when a client scrapes. `docs/metrics.md` lists all metrics.
"""
