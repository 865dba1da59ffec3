from tests.delivery.test_http_client import certificate

__all__ = ["certificate"]
