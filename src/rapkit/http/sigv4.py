"""Authenticate callers that sign requests with AWS Signature Version 4, using the key pairs configured here.

The signature covers the method, the path, the query, the headers it names and the body. It is computed again from the request as it was
received, by the signer that also signs ours, and compared in constant time. AWS is not asked who may do what: IAM is for a gateway.
"""

import hmac
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from starlette.types import Scope

from rapkit.delivery.request_signer import ALGORITHM, TIME_FORMAT, check_installed
from rapkit.errors import ConfigError

AwsKeys = Mapping[str, Mapping[str, str]]
"""By the caller's name: secret access keys by their access key ids; several while they are rotated."""

_WINDOW = 300.0
_PREFIX = f"{ALGORITHM} ".encode()
_HEADER = re.compile(
    rf"{ALGORITHM} +Credential=([A-Za-z0-9]+)/([0-9]{{8}})/([A-Za-z0-9-]+)/([A-Za-z0-9-]+)/aws4_request *, *"
    r"SignedHeaders=([a-z0-9;_.-]+) *, *Signature=([0-9a-f]{64}) *"
)
_ACCESS_KEY = re.compile(r"[A-Za-z0-9]{3,128}")
_SHORTEST_SECRET = 16
_MUST_BE_SIGNED = ("host", "x-amz-date")


class NotAuthentic(Exception):
    """A request whose signature proves nothing. The text says why, for the log, and repeats nothing of what was sent."""


class SigV4Keys:
    """Names callers by the key that signed their request.

    `base_path` is the path of our public URL: a proxy that takes it off leaves us a shorter path than was signed. `now` is what the time of
    a signature is compared with.
    """

    def __init__(self, keys: AwsKeys, base_path: str = "", now: Callable[[], float] = time.time) -> None:
        check_installed()
        self._base_path = base_path.rstrip("/")
        self._now = now
        self._owners: dict[str, tuple[str, str]] = {}
        for name, pairs in keys.items():
            if not pairs:
                raise ConfigError(f"{name!r} has no AWS key. Give it one, or leave the name out.")
            for access_key, secret_key in pairs.items():
                if not _ACCESS_KEY.fullmatch(access_key):
                    raise ConfigError(
                        f"An access key id of {name!r} cannot be used: it has letters and digits, 3 to 128 of them."
                    )
                if len(secret_key) < _SHORTEST_SECRET:
                    raise ConfigError(
                        f"The secret access key of {access_key} is too easy to guess: use {_SHORTEST_SECRET} characters or more."
                    )
                if self._owners.setdefault(access_key, (name, secret_key))[0] != name:
                    raise ConfigError(
                        f"{self._owners[access_key][0]!r} and {name!r} have the same access key {access_key}."
                    )

    @staticmethod
    def signed(headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request says that it is signed in this way."""
        return headers.get(b"authorization", b"").startswith(_PREFIX)

    def identify(self, scope: Scope, body: bytes) -> str:
        """The name of the caller who signed this very request a moment ago; `NotAuthentic` if none of ours did."""
        from rapkit.delivery.sigv4 import Signable, body_hash, signature

        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        given = dict(headers)
        match = _HEADER.fullmatch(given.get("authorization", ""))
        if match is None:
            raise NotAuthentic("its AWS signature cannot be read")
        access_key, day, region, service, names, theirs = match.groups()
        if access_key not in self._owners:
            raise NotAuthentic("its AWS access key is not known here")
        signed = names.split(";")
        if any(name not in signed for name in _MUST_BE_SIGNED) or any(name not in given for name in signed):
            raise NotAuthentic(
                "its AWS signature does not cover host and x-amz-date, or covers headers that are not there"
            )
        moment = given["x-amz-date"]
        self._check_time(moment, day)
        hashed = body_hash(body)
        if given.get("x-amz-content-sha256", hashed) != hashed:
            raise NotAuthentic("its x-amz-content-sha256 is not the hash of its body; unsigned bodies are not accepted")
        request = Signable(
            scope["method"],
            self._path(scope),
            scope.get("query_string", b"").decode(errors="replace"),
            tuple((name, value) for name, value in headers if name in signed),
            hashed,
        )
        caller, secret_key = self._owners[access_key]
        ours = signature(request, time=moment, region=region, service=service, secret_key=secret_key)
        if not hmac.compare_digest(ours, theirs):
            raise NotAuthentic("its AWS signature is not good")
        return caller

    def _check_time(self, moment: str, day: str) -> None:
        try:
            signed_at = datetime.strptime(moment, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise NotAuthentic("its x-amz-date is not a time") from None
        if not moment.startswith(day) or abs(self._now() - signed_at) > _WINDOW:
            raise NotAuthentic("its AWS signature is more than 5 minutes old, or a clock is wrong")

    def _path(self, scope: Scope) -> str:
        raw = scope.get("raw_path")
        path: str = scope["path"] if raw is None else raw.decode(errors="replace")
        return path if path.startswith(f"{self._base_path}/") else self._base_path + path
