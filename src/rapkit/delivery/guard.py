"""SSRF protection: which addresses may be dialled when another party supplies the URL.

A name proves nothing and an address has many spellings, so strings are never trusted: the URL is read by the same
parser that will dial it, every address behind its host is judged, and only judged addresses are handed out.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from pyreqwest.http import Url

from rapkit.delivery.name_resolver import NameResolver
from rapkit.errors import ConfigError, DeliveryError, ForbiddenTarget

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""From host and port to addresses; fails with OSError when the name is unknown."""

_LOCALHOST = (ip_address("127.0.0.1"), ip_address("::1"))
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

# Spelled out because `is_global` has holes: in Python 3.11 it says yes to multicast, NAT64, 6to4, site-local and SRv6.
# The first match names the reason, so a wide network stands below the narrow ones it contains.
_DENIED = tuple(
    (ip_network(network), reason)
    for reason, networks in (
        ("loopback", "127.0.0.0/8 ::1/128"),
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"),
        ("link-local, where clouds keep their metadata", "169.254.0.0/16 fe80::/10"),
        ("a cloud platform's own", "168.63.129.16/32"),  # Azure's; those of other clouds are in networks listed here
        ("carrier-grade NAT", "100.64.0.0/10"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        ("site-local", "fec0::/10"),
        ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
        ("benchmarking", "198.18.0.0/15 2001:2::/48"),
        # These carry an IPv4 address inside, and a gateway may send the packet on to it.
        ("an IPv4 address in disguise", "64:ff9b::/96 64:ff9b:1::/48 2002::/16 192.88.99.0/24 2001::/32 ::/96"),
        ("segment routing", "5f00::/16"),
        ("reserved", "0.0.0.0/8 192.0.0.0/24 240.0.0.0/4 2001::/23 ::/3 4000::/2 8000::/1"),  # IPv6: all but 2000::/3
    )
    for network in networks.split()
)

# No control characters, blanks or lone surrogates anywhere, no user name, no backslash where the parser would make it a
# slash: what is left reaches the server as it was written, and the part in parentheses is exactly its authority.
_URL = re.compile(
    r"""(https?://[^\x00-\x20\x7f-\x9f\ud800-\udfff\\/?#@]+)
        (?:/[^\x00-\x20\x7f-\x9f\ud800-\udfff\\?#]*)?
        (?:[?\#][^\x00-\x20\x7f-\x9f\ud800-\udfff]*)?""",
    re.VERBOSE | re.IGNORECASE,
)
_LONGEST_URL = 8192
_LONGEST_HOST = 253


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads. `origin` is `scheme://host:port` in one spelling; `host` is bare, without brackets."""

    scheme: str
    host: str
    port: int
    origin: str


class Guard:
    """Rejects every address that is not public, unless it was allowed.

    `allow` takes networks ("10.0.0.0/8"), addresses ("10.1.2.3") and origins ("http://agent.internal:8700"); an origin
    is trusted whatever it resolves to. `loopback` allows this machine. Plain http is for what is allowed by one of
    these; everything else needs https (TRA-2). Without a `resolver` the operating system is asked.
    """

    def __init__(self, allow: Iterable[str] = (), loopback: bool = False, *, resolver: Resolver | None = None) -> None:
        self._resolver = resolver or NameResolver()
        self._networks: list[IPv4Network | IPv6Network] = list(_LOOPBACK) if loopback else []
        self._origins: set[str] = set()
        for entry in allow:
            if "://" in entry:
                self._origins.add(_allowed_origin(entry))
            else:
                self._networks.append(_allowed_network(entry))
        # Bounded, because other parties choose the keys. A refusal is not remembered: it is rare, and cheap to repeat.
        self._judge_origin = lru_cache(maxsize=1024)(self._judge_authority)

    def check_url(self, url: str) -> Target:
        """Judge what the URL alone shows; raises ForbiddenTarget. Asks no resolver, takes microseconds.

        The error never contains the URL's path or query, because they carry secrets.
        """
        match = _URL.fullmatch(url)
        if match is None or len(url) > _LONGEST_URL:
            raise ForbiddenTarget(_what_is_wrong(url))
        return self._judge_origin(match[1])

    async def resolve(self, target: Target) -> tuple[str, ...]:
        """The addresses to dial for a checked target. All of them are allowed, or ForbiddenTarget is raised.

        Dial these and nothing else: asking for the name again may give another answer. A name that cannot be resolved
        is a DeliveryError, since it may resolve later.
        """
        if _is_address(target.host):
            return (self._judge_address(target, target.host),)
        try:
            found = await self._resolver(target.host, target.port)
        except (OSError, UnicodeError) as error:  # UnicodeError: labels the DNS cannot carry
            raise DeliveryError(f"{target.origin}: the name does not resolve ({error}).") from None
        addresses = tuple(dict.fromkeys(found))
        if not addresses:
            raise DeliveryError(f"{target.origin}: the name has no address.")
        return tuple(self._judge_address(target, address) for address in addresses)

    def _judge_authority(self, authority: str) -> Target:
        target = _parse(authority)
        if target.origin in self._origins:
            return target
        if _is_address(target.host):
            self._judge_address(target, target.host)
        elif _is_localhost(target.host) and not any(map(self._allows, _LOCALHOST)):
            raise _forbidden(target, "is this machine")
        elif target.scheme == "http" and not self._networks:
            raise _plain_http(target)
        return target

    def _judge_address(self, target: Target, text: str) -> str:
        """The address in the spelling to dial, so that what is dialled is what was judged."""
        try:
            # A resolver may add the zone of a link-local address, which says nothing about where it belongs.
            address = ip_address(text.partition("%")[0])
        except ValueError:
            raise _forbidden(target, "resolves to something that is not an address") from None
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped  # what the kernel dials
        if target.origin in self._origins or self._allows(address):
            return str(address)
        for network, reason in _DENIED:
            if address in network:
                raise _forbidden(target, f"leads to {address}, which is {reason}")
        if target.scheme == "http":
            raise _plain_http(target)
        return str(address)

    def _allows(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._networks)


def _parse(authority: str) -> Target:
    try:
        url = Url(authority)
    except ValueError as error:
        raise ForbiddenTarget(f"The URL has no usable host and port: {error}.") from None
    scheme, host, port = url.scheme, url.host_str, url.port_or_known_default
    if not host or not port or len(host) > _LONGEST_HOST:
        raise ForbiddenTarget("The URL has no usable host and port.")
    return Target(scheme, host.strip("[]"), port, f"{scheme}://{host}:{port}")


def _is_address(host: str) -> bool:
    # The parser turned every numeric spelling into the plain one, so anything else is a name.
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_localhost(host: str) -> bool:
    name = host.rstrip(".")
    return name == "localhost" or name.endswith(".localhost")


def _forbidden(target: Target, why: str) -> ForbiddenTarget:
    return ForbiddenTarget(f"{target.origin} {why}. If you trust it, allow its network, its address or its origin.")


def _plain_http(target: Target) -> ForbiddenTarget:
    return _forbidden(target, "speaks plain http, which is only for targets allowed explicitly; use https")


def _what_is_wrong(url: str) -> str:
    if len(url) > _LONGEST_URL:
        return f"The URL is longer than {_LONGEST_URL} characters."
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("http", "https"):
        return "The URL is not one of http:// or https://."
    if "@" in re.split(r"[/?#\\]", rest)[0]:
        return "The URL has a user name or password in it; send credentials in its path, its query or a header."
    return "The URL has no host, or contains blanks, control characters or backslashes; percent-encode them."


def _allowed_origin(entry: str) -> str:
    match = _URL.fullmatch(entry)
    try:
        if match is None or entry[match.end(1) :] not in ("", "/"):
            raise ForbiddenTarget("An origin is scheme://host:port and nothing more.")
        return _parse(match[1]).origin
    except ForbiddenTarget as error:
        raise _not_allowable(entry, str(error)) from None


def _allowed_network(entry: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(entry)
    except ValueError as error:
        raise _not_allowable(entry, f"{error}.") from None


def _not_allowable(entry: str, why: str) -> ConfigError:
    return ConfigError(
        f"Cannot allow {entry!r}: {why}\n"
        "Possible are a network (10.0.0.0/8), an address (10.1.2.3, fd00::1) or an origin (http://agent.internal:8700)."
    )
