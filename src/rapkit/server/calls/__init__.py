"""Running invocations: claim a call, run its handler, commit its one result."""
