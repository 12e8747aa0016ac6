"""Kafka's security protocols (`org.apache.kafka.common.security.auth.SecurityProtocol`)."""

from typing import Final

# The number of a protocol in requests is its index.
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
