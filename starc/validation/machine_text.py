"""A machine as the text of a machine file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def machine_text(data: Mapping[str, Any], comment: str = "") -> str:
    """TOML with every number's table on one line. ``comment`` stands above it."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    if lines:
        lines.append("")
    lines += [f"{_key(key)} = {_value(value)}" for key, value in data.items() if not _table(value)]
    for key, value in data.items():
        if _table(value):
            lines += _section(_key(key), value)
    return "\n".join(lines) + "\n"


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _inline(value: Any) -> bool:
    """A number with its unit and source, which stands on one line; everything that is no table."""
    return not _table(value) or "value" in cast("dict[str, Any]", value)


def _section(path: str, table: Mapping[str, Any]) -> list[str]:
    own = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if _inline(value)]
    lines = ["", f"[{path}]", *own] if own else []
    for key, value in table.items():
        if not _inline(value):
            lines += _section(f"{path}.{_key(key)}", cast("dict[str, Any]", value))
    return lines


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            text = repr(value)
            return text if any(sign in text for sign in ".einf") else f"{text}.0"
        case str():
            return _text(value)
        case list():
            return "[" + ", ".join(_value(item) for item in cast("list[Any]", value)) + "]"
        case dict():
            inner = cast("dict[str, Any]", value)
            return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in inner.items()) + " }"
        case _:
            raise TypeError(f"no value of a machine file: {value!r}")


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for plain, sign in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        escaped = escaped.replace(plain, sign)
    return f'"{escaped}"'
