"""The options of a backend, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbcompile.view.reports import report

if TYPE_CHECKING:
    from nbcompile.backends.browse import Option, OptionTable


def to_text(table: OptionTable) -> str:
    """A line an option."""
    return report.to_text(_title(table), _sections(table))


def to_html(table: OptionTable) -> str:
    """The same as a fragment for a notebook output."""
    return report.to_html(_title(table), _sections(table))


def _title(table: OptionTable) -> str:
    return f"{table.backend}: {len(table)} option{'s' if len(table) != 1 else ''}"


def _sections(table: OptionTable) -> list[report.Section]:
    rows = tuple((o.name, " | ".join(o.values) or o.type, o.default, _about(o)) for o in table.options)
    return [report.Section("", ("option", "type", "default", ""), rows)]


def _about(option: Option) -> str:
    """What it does, and the modes that set it: too few do for a column of their own."""
    set_by = "; ".join(f"mode {mode} sets {value}" for mode, value in option.modes.items())
    return f"{option.about} ({set_by})".strip() if set_by else option.about
