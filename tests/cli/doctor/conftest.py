from tests.delivery.test_client import certificate

__all__ = ["certificate"]
