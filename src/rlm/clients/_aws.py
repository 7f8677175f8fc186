"""Requests to AWS: credentials, regions, and signatures (Signature Version 4)."""

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit

from msgspec import Struct

from rlm.errors import ConfigError

__all__ = [
    "REGION_VARIABLES",
    "AwsCredentials",
    "Signer",
    "credentials_in",
    "region_in",
    "signed_headers",
]

ALGORITHM = "AWS4-HMAC-SHA256"
ACCESS_KEY, SECRET_KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION = "us-east-1"

_REGION = re.compile(r"[a-z]{2,8}(-[a-z]{2,12}){1,3}-\d{1,2}")
_SPACES = re.compile(r" +")


class AwsCredentials(Struct, frozen=True):
    """An access key. Temporary ones come with a session token."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"AwsCredentials({self.access_key_id!r})"


def credentials_in(variables: Mapping[str, str]) -> AwsCredentials | None:
    """Return the access key in the variables; raise ConfigError if half of it is missing."""
    name, secret = variables.get(ACCESS_KEY), variables.get(SECRET_KEY)
    if not name and not secret:
        return None
    if not name or not secret:
        given, missing = (ACCESS_KEY, SECRET_KEY) if name else (SECRET_KEY, ACCESS_KEY)
        raise ConfigError(f"{given} is set without {missing}: set both")
    return AwsCredentials(name, secret, variables.get("AWS_SESSION_TOKEN") or None)


def region_in(variables: Mapping[str, str]) -> str:
    """Return the region; check its form, because it becomes part of the host that gets the key."""
    named = next((name for name in REGION_VARIABLES if variables.get(name)), None)
    if named is None:
        return DEFAULT_REGION
    region = variables[named].strip()
    if not _REGION.fullmatch(region):
        raise ConfigError(f"{named} is not an AWS region: set it to one such as us-east-1")
    return region


def signed_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    credentials: AwsCredentials,
    region: str,
    service: str,
    when: float,
) -> dict[str, str]:
    """Return the headers to add to a request: the date, the token, and the signature.

    `url` must be sent exactly as given. All of `headers` are signed.
    """
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(when))
    added = {"X-Amz-Date": date}
    if credentials.session_token:
        added["X-Amz-Security-Token"] = credentials.session_token
    parts = urlsplit(url)
    named = {"host": parts.netloc.rpartition("@")[2], **headers, **added}
    canonical = {name.lower(): _SPACES.sub(" ", value.strip(" ")) for name, value in named.items()}
    signed = ";".join(sorted(canonical))
    request = "\n".join(
        [
            method,
            quote(parts.path or "/", safe="/~"),
            _canonical_query(parts.query),
            *(f"{name}:{canonical[name]}" for name in sorted(canonical)),
            "",
            signed,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, f"{ALGORITHM}\n{date}\n{scope}\n{digest}").hex()
    credential = f"{credentials.access_key_id}/{scope}"
    added["Authorization"] = (
        f"{ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature={signature}"
    )
    return added


def _canonical_query(query: str) -> str:
    given = parse_qsl(query, keep_blank_values=True)
    pairs = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in given)
    return "&".join(f"{name}={value}" for name, value in pairs)


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Signer:
    """Signs every request of one client anew, because a signature expires after minutes."""

    def __init__(self, credentials: AwsCredentials, region: str) -> None:
        self._credentials = credentials
        self._region = region

    def __repr__(self) -> str:
        return f"Signer({self._credentials!r}, {self._region!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in an error."""
        own = self._credentials
        return tuple(filter(None, (own.secret_access_key, own.session_token)))

    def sign(self, url: str, body: bytes) -> dict[str, str]:
        """Return the headers that authorize this POST."""
        return signed_headers(
            "POST",
            url,
            {},
            body,
            credentials=self._credentials,
            region=self._region,
            service="bedrock",
            when=time.time(),
        )
