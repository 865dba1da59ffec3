"""The work engine that agents and tool servers share: polling for due work, retries of store operations, and maintenance."""
