"""Logging set-up: lines as text or JSON, with the ids they are about."""

import json
import logging
import re
import sys
import time

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_INDENT = "    "
_AMBIGUOUS = re.compile(r"""[\s"'=]""")


def set_up_logging(style: str, level: str) -> None:
    """Log to standard error, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class TextLines(logging.Formatter):
    """`2026-11-16 12:04:31 INFO    rapkit.calls: call finished  operation=forecast call_id=c1`.

    Values are untrusted text, so one that could be taken for something else is quoted as in JSON: `call_id="c1 outcome=ok"`.
    Messages and exceptions can hold such words too: what a terminal would act on is escaped, and lines after the first are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        fields = " ".join(
            f"{_shown(key)}={_value(value)}" for key, value in _extra(record).items() if value is not None
        )
        line = f"{clock} {record.levelname:<7} {_shown(record.name)}: {_shown(record.getMessage())}{'  ' if fields else ''}{fields}"
        return f"{line}\n{_INDENT}{_shown(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, then what the line is about."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _value(value: object) -> str:
    text = str(value)
    printable = text.isprintable()
    if text and printable and not _AMBIGUOUS.search(text):
        return text
    # What a terminal would act on, or not show, is escaped; letters of any language stay readable.
    return json.dumps(text, ensure_ascii=not printable)


def _shown(text: str) -> str:
    """Text of several lines, none of which can be taken for a line of the log, nor act on a terminal."""
    return f"\n{_INDENT}".join("".join(map(_visible, line)) for line in text.split("\n"))


def _visible(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}
