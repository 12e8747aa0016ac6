"""kio's own classes for the messages that klog writes by hand."""

from __future__ import annotations

from importlib import import_module


def _found(api: str, version: int, kind: str) -> type:
    found: type = getattr(import_module(f"kio.schema.{api}.v{version}"), api.capitalize() + kind)
    return found


def kio_request(api: str, version: int) -> type:
    return _found(api, version, "Request")


def kio_response(api: str, version: int) -> type:
    return _found(api, version, "Response")
