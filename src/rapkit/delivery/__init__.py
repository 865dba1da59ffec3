"""Outgoing HTTP: the outbox sender, the guarded client, retry policies and signatures."""
