"""Reads what a server answers over HTTP or HTTPS, within limits of time and size."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from collections.abc import Callable
from typing import Final

LARGEST_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 16


def read_answer(
    request: urllib.request.Request,
    timeout_s: float,
    context: ssl.SSLContext | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> bytes:
    """The body of the answer. Raises OSError also if no byte comes for `timeout_s`, if the body is not
    complete in this time, if it is larger than `LARGEST_BYTES`, and if the answer is none of HTTP.
    """
    end_s = now_s() + timeout_s
    body = bytearray()
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:  # noqa: S310 (checked)
            while piece := answer.read1(_PIECE_BYTES):
                body += piece
                if len(body) > LARGEST_BYTES:
                    raise OSError(f"the answer is larger than {LARGEST_BYTES} bytes")
                if now_s() > end_s:
                    raise TimeoutError(f"the answer is not complete after {timeout_s:g} s")
            if answer.length:
                raise OSError("the answer ends too early")
    except http.client.HTTPException as error:
        raise OSError(f"the answer is none of HTTP: {error!r}") from error
    return bytes(body)
