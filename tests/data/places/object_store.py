"""An S3-compatible server: moto's, in a thread, as its own programs and ours see it."""

import importlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

boto3 = importlib.import_module("boto3")
moto = importlib.import_module("moto.server")
backend = importlib.import_module("moto.moto_api._internal.models").moto_api_backend

SETTINGS = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-object-store",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def object_store() -> Generator[Any, None, None]:
    """Start a server with an empty bucket named `logs`; yield a client of boto3."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    settings = {**SETTINGS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        backend.reset()  # What an earlier server held is kept in this process.
        client = boto3.client("s3")
        client.create_bucket(Bucket="logs")
        yield client
        client.close()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.stop()


def put(client: Any, bucket: str, **objects: Any) -> None:
    for name, body in objects.items():
        client.put_object(Bucket=bucket, Key=name, Body=body)
