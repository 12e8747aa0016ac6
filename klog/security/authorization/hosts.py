"""The IP address of a client as ACLs name it.

Rules: Java's `InetAddress.getHostAddress`, whose text Kafka compares: IPv6 without abbreviation and without
leading zeros, and the IPv4 address of a client that came through an IPv6 socket.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache


def host_of(address: str) -> str:
    """The text of an address as Java writes it."""
    return _of_ipv6(address) if ":" in address else address


@lru_cache(maxsize=1024)
def _of_ipv6(address: str) -> str:
    plain, percent, zone = address.partition("%")
    try:
        parsed = ipaddress.IPv6Address(plain)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split(":")) + percent + zone
