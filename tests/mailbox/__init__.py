# ruff: noqa: A005 - it is `tests.mailbox`, named after `rapkit.mailbox`, and shadows nothing
