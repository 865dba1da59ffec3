"""HTTP for both sides of the protocol: authentication, reading requests, limits, responses, and serving until a signal."""
