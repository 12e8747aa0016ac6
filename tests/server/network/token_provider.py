"""A provider of tokens on 127.0.0.1: its public keys (`/keys`), a token endpoint (`/token`), odd answers."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from klog.client.http_reading import LARGEST_BYTES

SECRET: Final = "the secret of all clients"
LIFETIME_S: Final = 300
Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def well(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def with_an_error(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_error(500)


def as_no_json(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    well(handler, b"<html>")


def as_no_http(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.wfile.write(b"\x16\x03\x01 nothing of HTTP\r\n\r\n")


def too_much(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    well(handler, body + b" " * LARGEST_BYTES)


def not_all(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body) + 1))
    handler.end_headers()
    handler.wfile.write(body)


def never(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    time.sleep(2)


def byte_by_byte(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    for byte in body:
        handler.wfile.write(bytes((byte,)))
        time.sleep(0.02)


def headers_without_end(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _ in range(200):
        handler.wfile.write(b"x")
        time.sleep(0.02)


@cache
def _key(key_id: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class TokenProvider:
    """A context manager. `answers` says how it answers, `key_id` is that of its only key, and `asked` counts
    the requests for keys. Tokens of the endpoint are good for `lifetime_s`.
    """

    def __init__(self, tls: ssl.SSLContext | None = None, lifetime_s: int = LIFETIME_S) -> None:
        self.answers: Answer = well
        self.key_id = "first"
        self.asked = 0
        self.lifetime_s = lifetime_s
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                provider.answers(self, provider.key_set())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                kind, _, secret = self.headers["Authorization"].partition(" ")
                client, _, given = base64.b64decode(secret).decode().partition(":")
                if kind != "Basic" or given != SECRET:
                    self.send_error(401)
                    return
                token = provider.token(client, lifetime_s=provider.lifetime_s)
                issued = {"access_token": token, "expires_in": provider.lifetime_s}
                provider.answers(self, json.dumps(issued).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def key_set(self) -> bytes:
        """The JWKS."""
        public: Any = jwt.algorithms.ECAlgorithm.to_jwk(_key(self.key_id).public_key(), as_dict=True)
        return json.dumps({"keys": [{**public, "kid": self.key_id}]}).encode()

    def token(self, subject: str, key_id: str | None = None, lifetime_s: int = LIFETIME_S) -> str:
        """A token of somebody, signed with the present key or another."""
        now_s = int(time.time())
        claims = {"sub": subject, "scope": "kafka", "iat": now_s, "exp": now_s + lifetime_s}
        name = key_id or self.key_id
        return jwt.encode(claims, _key(name), "ES256", {"kid": name})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
