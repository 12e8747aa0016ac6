"""moto's S3 server with an empty bucket `backups`, and credentials for it in the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

HOST = "127.0.0.1"


def uri_of(port: int, name: str = "cluster") -> str:
    """A place in the bucket of the server at a port."""
    return f"s3://backups/{name}?endpoint_override={HOST}:{port}&scheme=http&region=us-east-1"


@contextmanager
def credentials() -> Iterator[None]:
    """Those that moto takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


def create_bucket(port: int) -> None:
    """Create the bucket at a running server."""
    import boto3

    client = boto3.client("s3", endpoint_url=f"http://{HOST}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="backups")
    client.close()


@contextmanager
def moto_s3() -> Iterator[int]:
    """The port of a server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    try:
        with credentials():
            _, port = server.get_host_and_port()
            create_bucket(port)
            yield port
    finally:
        server.stop()
