"""OAuth: users authorise the server at a provider; the server keeps and refreshes their tokens (OAU-2).

`OAuthProvider` declares a provider; `OAuth` is what a running toolset has of it all.
"""

from rapkit.server.interaction.oauth.provider import OAuthProvider
from rapkit.server.interaction.oauth.service import OAuth, RedirectEndpoint

__all__ = ["OAuth", "OAuthProvider", "RedirectEndpoint"]
