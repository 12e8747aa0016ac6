"""Metrics for Prometheus, under the names that dashboards for Kafka know (those of the JMX exporter's rules).

Everything is read from what the rooms count anyway, when somebody asks. `docs/metrics.md` lists them all.
"""
