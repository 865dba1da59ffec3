"""Endpoints without authentication, because each request carries its own proof: users' answers, OAuth redirects, webhooks."""

from ipaddress import IPv6Address, ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import Body, Refusal, address_of, retry_later, send_problem

_IPV6_SITE_BITS = 64


class UnauthenticatedEndpoint:
    """An endpoint with limits for unauthenticated clients: on requests a second and address, on the body's size, and on time.

    A request beyond them is refused in words, before or while the endpoint reads its body; it must let that `Refusal` through.
    """

    def __init__(self, endpoint: ASGIApp, rate: RateLimit, largest: int) -> None:
        self._endpoint = endpoint
        self._rate = rate
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answered = False

        async def watched(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            check_rate(self._rate, scope)
            await self._endpoint(scope, Body(scope, receive, self._largest).receive, watched)
        except Refusal as refusal:
            if answered:
                raise  # nothing can be taken back
            await send_problem(send, refusal)


def check_rate(rate: RateLimit, scope: Scope) -> None:
    """Count a request against its client; raises a `Refusal` if there are too many."""
    if wait := rate.wait(rate_key(scope)):
        raise retry_later("Too many requests come from your address.", wait)


def rate_key(scope: Scope) -> str:
    """The key that requests are counted by: an IPv4 address, or the 64-bit prefix that a site or host has in IPv6."""
    address = address_of(scope) or ""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Address(int(parsed) >> _IPV6_SITE_BITS << _IPV6_SITE_BITS))
