"""Asks a schema registry over HTTP.

This is imported only for that, because `urllib.request` imports a hundred modules.
"""

from __future__ import annotations

import base64
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from klog.client.errors import ClientError
from klog.export.decoders.registry import Get
from klog.formats.errors import UsageError

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
