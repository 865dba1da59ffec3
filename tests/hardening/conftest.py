from tests.interop.conftest import join, serve, up

__all__ = ["join", "serve", "up"]
