"""A server with a self-signed certificate: refused with a clear error, and not tried again."""

import ssl
from pathlib import Path

from rlm.testing.fake_server import FakeServer
from tests.clients.conformance.bench import client_of, failure

CERTIFICATE = Path(__file__).with_name("self-signed.pem")
"""For localhost, made for these tests alone; it protects nothing, and no one trusts it."""


async def test_a_self_signed_certificate_is_refused(dialect: str, how: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    async with FakeServer(["unreached"], tls=context) as server:
        client = client_of(dialect, server)
        assert server.url.startswith("https://")
        error = await failure(client, how)
        await client.close()
        assert server.count == 0
    assert (error.status, error.retryable, error.ambiguous) == (None, False, False)
    assert "certificate" in str(error)
