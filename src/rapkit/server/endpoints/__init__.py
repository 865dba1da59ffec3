"""The HTTP endpoints of a toolset: invocations, notices and webhooks."""
