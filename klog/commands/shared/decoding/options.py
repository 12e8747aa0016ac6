"""The options that say how keys and values are decoded: those of `klog export`, some by other names."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from klog.client.errors import ClientError
from klog.commands.shared.decoding.field_encoding import FieldEncoding
from klog.commands.shared.option_sets import optional
from klog.export.decoders.registry import Get
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.commands.shared.decoding.fields import RecordDecoder

_PANEL: Final = "Decoding"


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How to decode keys and values to JSON."""

    schema_dir: str | None = optional(
        None,
        "Decode what is in Confluent's wire format, with the schemas of a directory, a file for each id "
        "(42.avsc, 42.json, 42.desc).",
        panel=_PANEL,
        metavar="DIR",
    )
    schema_registry: str | None = optional(
        None,
        "The same with the schemas of a registry: https://USER:PASSWORD@HOST:PORT.",
        panel=_PANEL,
        metavar="URL",
    )
    decode_key: FieldEncoding | None = optional(None, "The encoding of the keys.", panel=_PANEL)
    decode_value: FieldEncoding | None = optional(None, "The encoding of the values.", panel=_PANEL)
    key_schema: str | None = optional(None, "As --value-schema, for keys.", panel=_PANEL, metavar="FILE|TEXT")
    value_schema: str | None = optional(
        None,
        "avro: the schema. protobuf: compiled descriptors (protoc --include_imports -o).",
        panel=_PANEL,
        metavar="FILE|TEXT",
    )
    key_message: str | None = optional(None, "As --value-message, for keys.", panel=_PANEL, metavar="NAME")
    value_message: str | None = optional(
        None, "The protobuf message. Default: the first.", panel=_PANEL, metavar="NAME"
    )

    @property
    def wanted(self) -> bool:
        """Whether anything is to be decoded."""
        return any(getattr(self, name) is not None for name in self.__slots__)

    def decoder(self, registry_url: str | None = None) -> RecordDecoder | None:
        """The decoder that is asked for; `registry_url` counts if no other is named. Raises UsageError."""
        url = self.schema_registry or registry_url
        if not self.wanted and url is None:
            return None
        from klog.commands.shared.decoding.fields import RecordDecoder, field_decoder
        from klog.export.decoders.registry import DirectorySource, RegistrySource, SchemaSource

        if self.schema_dir is not None and url is not None:
            raise UsageError("schemas come from two places", cure="--schema-dir or --schema-registry")
        source: SchemaSource | None = None
        if self.schema_dir is not None:
            source = DirectorySource(self.schema_dir)
        elif url is not None:
            source = RegistrySource(registry_get(url))
        return RecordDecoder(
            field_decoder("key", self.decode_key, self.key_schema, self.key_message, source),
            field_decoder("value", self.decode_value, self.value_schema, self.value_message, source),
        )


# -- Asks a schema registry over HTTP ------------------------------------------------------------------------

_TIMEOUT_S: Final = 30.0
_LARGEST_ANSWER_BYTES: Final = 16 << 20
_NOT_FOUND: Final = 404
_CURE: Final = "is it a schema registry? --schema-dir works without one"


def registry_get(url: str) -> Get:
    """Gets paths of the registry at `url`, which may hold a user and a password. Raises UsageError.

    The function raises ClientError if the registry cannot be reached or refuses.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--schema-registry {url!r} is not a URL", cure="https://host:port")
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    host = parts.netloc.rpartition("@")[2]
    base = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    def get(path: str) -> bytes | None:
        try:
            with urlopen(Request(base + path, headers=headers), timeout=_TIMEOUT_S) as answer:  # noqa: S310
                data: bytes = answer.read(_LARGEST_ANSWER_BYTES + 1)
        except HTTPError as error:
            error.close()
            if error.code == _NOT_FOUND:
                return None
            raise ClientError(f"the schema registry at {base} answers {error.code} {error.reason}") from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ClientError(
                f"the schema registry at {base} cannot be asked: {reason}", cure=_CURE
            ) from None
        if len(data) > _LARGEST_ANSWER_BYTES:
            raise ClientError(f"the schema registry at {base} answers with too much", cure=_CURE)
        return data

    return get
