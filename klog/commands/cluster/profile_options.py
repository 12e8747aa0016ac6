"""The options of `klog profile add` that stand for several of Kafka's properties each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from klog.commands.shared.option_sets import flag, option_set, valued
from klog.commands.shared.properties import text_of
from klog.formats.errors import UsageError

_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


@option_set("TLS")
class TlsOptions:
    """TLS by PEM files."""

    tls: bool = flag("Connect by TLS.")
    ca: Path | None = valued(
        "FILE", "PEM file of the authorities that sign brokers' certificates. [default: the system's]"
    )
    cert: Path | None = valued(
        "FILE", "PEM file with the client's own key and certificates, for brokers that ask for them."
    )

    @property
    def wanted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.tls or self.ca is not None or self.cert is not None

    def properties(self) -> dict[str, str]:
        """Kafka's properties."""
        found = {"security.protocol": "SSL"} if self.wanted else {}
        for store, path in (("truststore", self.ca), ("keystore", self.cert)):
            if path is not None:
                found[f"ssl.{store}.type"] = "PEM"
                found[f"ssl.{store}.location"] = str(path.absolute())
        return found


@option_set("SASL")
class LoginOptions:
    """Who the client is."""

    sasl: str | None = valued("MECHANISM", f"The mechanism: {', '.join(_MODULES)}.")
    user: str | None = valued("USER", "The user, or the client id of OAUTHBEARER.")
    password_file: Path | None = valued(
        "FILE", "A file with the password. [default: KLOG_PASSWORD, else it is asked for]"
    )
    token_url: str | None = valued("URL", "Where OAUTHBEARER gets tokens: the token endpoint, or file:PATH.")

    def properties(self, *, tls: bool, read_password: Callable[[str], str]) -> dict[str, str]:
        """Kafka's properties; `read_password` asks for that of a user. Raises UsageError, StorageError."""
        if self.sasl is None:
            if self.user or self.password_file or self.token_url:
                raise UsageError("the mechanism is missing", cure=f"--sasl {', '.join(_MODULES)}")
            return {}
        mechanism = self.sasl.upper()
        if mechanism not in _MODULES:
            raise UsageError(f"--sasl {self.sasl} is not supported", cure=", ".join(_MODULES))
        found = {"security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
        if self.token_url is not None:
            found["sasl.oauthbearer.token.endpoint.url"] = self.token_url
            if self.token_url.startswith("file:"):
                return found
        if self.user is None:
            raise UsageError("the user is missing", cure="--user USER")
        names = ("clientId", "clientSecret") if mechanism == "OAUTHBEARER" else ("username", "password")
        values = (self.user, self._password(self.user, read_password))
        options = " ".join(f"{name}={_quoted(value)}" for name, value in zip(names, values, strict=True))
        found["sasl.jaas.config"] = f"{_MODULES[mechanism]} required {options};"
        return found

    def _password(self, user: str, read_password: Callable[[str], str]) -> str:
        if self.password_file is None:
            return read_password(user)
        return text_of(self.password_file).rstrip("\r\n")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
