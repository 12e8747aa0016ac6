"""The options that say how keys and values are decoded: those of `klog export`, some by other names."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from klog.commands.shared.decoding.field_encoding import FieldEncoding
from klog.commands.shared.option_sets import option_set, optional, valued
from klog.formats.errors import UsageError

if TYPE_CHECKING:
    from klog.commands.shared.decoding.fields import RecordDecoder


@option_set("Decoding")
class DecodingOptions:
    """How to decode keys and values to JSON."""

    schema_dir: str | None = valued(
        "DIR",
        "Decode what is in Confluent's wire format, with the schemas of a directory, a file for each id "
        "(42.avsc, 42.json, 42.desc).",
    )
    schema_registry: str | None = valued(
        "URL", "The same with the schemas of a registry: https://USER:PASSWORD@HOST:PORT."
    )
    decode_key: FieldEncoding | None = optional(None, "The encoding of the keys.")
    decode_value: FieldEncoding | None = optional(None, "The encoding of the values.")
    key_schema: str | None = valued("FILE|TEXT", "As --value-schema, for keys.")
    value_schema: str | None = valued(
        "FILE|TEXT", "avro: the schema. protobuf: compiled descriptors (protoc --include_imports -o)."
    )
    key_message: str | None = valued("NAME", "As --value-message, for keys.")
    value_message: str | None = valued("NAME", "The protobuf message. Default: the first.")

    @property
    def wanted(self) -> bool:
        """Whether anything is to be decoded."""
        return any(getattr(self, each.name) is not None for each in fields(self))

    def decoder(self, registry_url: str | None = None) -> RecordDecoder | None:
        """The decoder that is asked for; `registry_url` counts if no other is named. Raises UsageError."""
        url = self.schema_registry or registry_url
        if not self.wanted and url is None:
            return None
        from klog.commands.shared.decoding.fields import RecordDecoder, field_decoder
        from klog.commands.shared.decoding.registry_http import registry_get
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
