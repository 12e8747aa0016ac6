"""Who a client is by the certificate of its TLS handshake, and why a handshake failed."""

from __future__ import annotations

import ssl
from typing import Final

from klog.security.authentication.principal_rules import PrincipalRules
from klog.security.principal import ANONYMOUS, KafkaPrincipal
from klog.server.network.certificates import subject_of
from klog.server.network.tls_socket import TlsSocket

# OpenSSL's reasons if the first bytes are no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG")


def tls_principal(sock: TlsSocket, rules: PrincipalRules) -> KafkaPrincipal:
    """What the rules make of the distinguished name in the client's certificate, as Kafka's default principal
    builder writes it, or User:ANONYMOUS for a client without a certificate. Raises FormatError.
    """
    certificate = sock.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    return KafkaPrincipal("User", rules.name_of(subject_of(certificate)))


def why_handshake_failed(error: Exception) -> str:
    """What to log of a handshake that failed, for the most usual mistake in words of our own."""
    why: object = error
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        why = "the client does not speak TLS, and this listener does (client: security.protocol=SSL)"
    return f"TLS handshake failed: {why}"
