"""The error raised when the demo cannot continue."""


class DemoFailed(Exception):
    """A step did not go as it should: what was expected, what was seen, and the last lines of the logs that tell more."""

    def __init__(self, what: str, *logs: str) -> None:
        super().__init__("\n\n".join((what, *filter(None, logs))))
