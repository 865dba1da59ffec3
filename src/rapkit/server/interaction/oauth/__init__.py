"""Acting for users elsewhere: they authorise us at a provider, we keep the token and refresh it (OAU-2).

`OAuthProvider` declares a provider; `OAuth` is what a running toolset has of it all.
"""

from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.service import OAuth, RedirectEndpoint

__all__ = ["OAuth", "OAuthProvider", "RedirectEndpoint"]
