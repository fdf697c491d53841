"""Colours and styles, each meaning one thing, in the two forms they are needed in.

The fragment in a notebook must survive Lab's sanitizer, which drops ``<style>`` and every declaration with
``var()``, and it cannot know the theme: its styles are inline, its text inherits the page's colour, its
tones are of middling luminance (at least 4:1 on white and on Lab's dark grey). The stand-alone page is ours:
there each style is a class and each tone a variable with a light and a dark value.
"""

from __future__ import annotations

from importlib.resources import files

from markupsafe import Markup

FATES = ("fused", "library", "fallback", "break", "captured")
UNCOMPILED = ("compiled", "python", "unrun")
"""Lines of which nothing is left to compute, or there never was anything to compile."""

# name: (mid tone for inline use, light, dark). Hues from Okabe and Ito's colour-blind safe set.
TONES: dict[str, tuple[str, str, str]] = {
    "fused": ("#0f9069", "#00855f", "#2fc79a"),
    "library": ("#3a86cc", "#0072b2", "#58a6e6"),
    "fallback": ("#ad7600", "#9a6a00", "#f0b83c"),
    "break": ("#d3602a", "#c44f00", "#ff8a4c"),
    "captured": ("#80838a", "#68707a", "#949ca6"),
    "dim": ("#80838a", "#68707a", "#949ca6"),
    "line": ("#80808040", "#e3e6ea", "#2b3036"),
    "soft": ("#80808014", "#f6f7f9", "#1c2025"),
    "bg": ("#80808000", "#ffffff", "#15181c"),
    "ink": ("#80838a", "#1b1f24", "#e6e9ed"),
    "tint-fused": ("#0f906926", "#e8f6f1", "#17322a"),
    "tint-library": ("#3a86cc20", "#eaf4fb", "#16293a"),
    "tint-fallback": ("#a9740024", "#fdf4e0", "#352b14"),
    "tint-break": ("#d3602a26", "#fdeee6", "#3a2318"),
    "tint-captured": ("#80808014", "#f6f7f9", "#1c2025"),
    "kw": ("#976be0", "#8250df", "#c297ff"),
    "num": ("#3a86cc", "#0550ae", "#79c0ff"),
    "str": ("#bd6c2c", "#9a4a10", "#e8a66a"),
    "com": ("#80838a", "#6a737c", "#7d8590"),
    "fn": ("#0f9069", "#116b52", "#5fd3ae"),
    "loop-fill": ("#0f9069", "#ffffff", "#15181c"),
    "loop-ink": ("#ffffff", "#1b1f24", "#e6e9ed"),
    "chip-ink": ("#ffffff", "#ffffff", "#0d1013"),
    "bar-eager": ("#80808090", "#b9bdc4", "#4c5157"),
}

SANS = "system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif"
MONO = "ui-monospace, Menlo, Consolas, monospace"

# ``$tone`` stands for a tone. Only properties that Lab's sanitizer lets through.
RULES: dict[str, str] = {
    "root": f"font-family: {SANS}; font-size: 13px; line-height: 1.45; border: 1px solid $line;"
    " border-radius: 8px; max-width: 1100px; margin: 4px 0; overflow: hidden; text-align: left",
    "head": "padding: 10px 14px",
    "verdict": "font-size: 19px; font-weight: 600; margin: 0; line-height: 1.3",
    "good": "color: $fused",
    "even": "color: $library",
    "bad": "color: $break",
    "none": "color: inherit",
    "because": "font-size: 13px; margin: 2px 0",
    "meta": "color: $dim; font-size: 12px",
    "facts": "font-size: 12px; margin-top: 4px",
    "fact": "display: inline-block; margin-right: 18px; white-space: nowrap",
    "strip": "border-top: 1px solid $line; border-bottom: 1px solid $line",
    "step": "display: inline-block; vertical-align: top; padding: 6px 18px 6px 14px",
    "stepname": "font-weight: 600; font-size: 12px",
    "stepnote": "color: $dim; font-size: 11px",
    "columns": "display: block",
    "half": "display: inline-block; vertical-align: top; max-width: 100%; padding: 6px 0 10px 0",
    "pane": "padding: 6px 0 10px 0; border-bottom: 1px solid $line",
    "title": "font-weight: 600; font-size: 12px; color: $dim; padding: 4px 14px; margin: 0",
    "gap": "padding-top: 12px; max-width: 420px",
    "fold": "border-bottom: 1px solid $line; margin: 0",
    "summary": "padding: 6px 14px; cursor: pointer; font-size: 13px",
    "body": "padding: 2px 14px 10px 14px",
    "scroll": "overflow: auto; max-height: 460px; padding: 2px 14px",
    "wide": "overflow: auto",
    "canvas": "overflow: auto; max-height: 720px; padding: 2px 14px",
    "tall": "overflow: auto; max-height: 620px; padding: 2px 14px",
    "img": "max-width: none; display: block; margin: 0; background: none",
    "table": "border-collapse: collapse; border: none; font-size: 12px; margin: 0; table-layout: auto",
    "row": "background: transparent",
    "rule": "border-top: 1px solid $line",
    "cellrow": "background: transparent; border: none",
    "td": "padding: 3px 12px 3px 0; text-align: left; vertical-align: top; border: none;"
    " white-space: nowrap",
    "tdw": "padding: 3px 12px 3px 0; text-align: left; vertical-align: top; border: none;"
    " white-space: normal; min-width: 160px",
    "th": "padding: 3px 12px 3px 0; text-align: left; vertical-align: top; border: none; font-weight: 500;"
    " color: $dim; white-space: nowrap",
    "num": "padding: 3px 12px 3px 0; text-align: right; vertical-align: top; border: none;"
    " white-space: nowrap",
    "numh": "padding: 3px 12px 3px 0; text-align: right; vertical-align: top; border: none;"
    " font-weight: 500; color: $dim; white-space: nowrap",
    "cells": "border-collapse: collapse; border: none; font-size: 12px; margin: 0",
    "ln": "padding: 0 10px 0 8px; text-align: right; border: none; color: $dim;"
    f" font-family: {MONO}; font-size: 12px; white-space: nowrap; vertical-align: top",
    "src": "padding: 0 8px 0 0; text-align: left; border: none; vertical-align: top",
    "share": "padding: 0 8px 0 0; text-align: right; border: none; color: $dim; font-size: 11px;"
    " white-space: nowrap; vertical-align: top",
    "chips": "padding: 0 14px 0 0; text-align: left; border: none; white-space: normal; min-width: 110px;"
    " vertical-align: top",
    "code": f"margin: 0; padding: 0; border: none; background: none; font-family: {MONO}; font-size: 12px;"
    " line-height: 1.55; white-space: pre-wrap; color: inherit; text-align: left; overflow-wrap: break-word",
    "pre": "margin: 0; padding: 0; border: none; background: none; line-height: 1.55; white-space: pre;"
    " overflow: visible; color: inherit",
    "gutter": "margin: 0; padding: 0; border: none; background: none; line-height: 1.55; white-space: pre;"
    " overflow: visible; color: $dim",
    "listing": f"font-family: {MONO}; font-size: 12px; text-align: left",
    "gcol": "padding: 0 12px 0 0; border: none; vertical-align: top; text-align: right",
    "ccol": "padding: 0; border: none; vertical-align: top; text-align: left",
    "column": "padding: 0 12px 0 0; border: none; vertical-align: top; text-align: left",
    "bar": "display: inline-block; background-color: $line; height: 5px; width: 44px; vertical-align: middle;"
    " border-radius: 3px; overflow: hidden; text-align: left",
    "fill": "display: block; height: 5px; border-radius: 3px",
    "chip": "display: inline-block; color: $chip-ink; font-size: 10px; font-weight: 600; line-height: 15px;"
    " border-radius: 8px; padding: 0 7px; margin: 1px 3px 1px 0; white-space: nowrap",
    "dim": "color: $dim",
    "strong": "font-weight: 600",
    "small": "font-size: 11px; color: $dim",
    "note": "padding: 3px 14px; font-size: 12px",
    "yes": "color: $fused; font-weight: 600",
    "no": "color: $break; font-weight: 600",
    "user": "color: $kw; font-weight: 600",
    **{f"at-{fate}": f"background-color: $tint-{fate}" for fate in FATES},
    **{f"edge-{fate}": f"border-left: 4px solid ${fate}" for fate in FATES},
    **{f"is-{fate}": f"background-color: ${fate}" for fate in FATES},
    "at-eager": "background-color: $tint-fallback",
    **{f"at-{fate}": "background-color: transparent" for fate in UNCOMPILED},
    "edge-eager": "border-left: 4px dotted $fallback",
    **{f"edge-{fate}": "border-left: 4px solid transparent" for fate in ("", *UNCOMPILED)},
    "why": "padding: 0 14px 3px 0; border: none; font-size: 11px; color: $dim; text-align: left; white-space:"
    " normal; background-color: $tint-fallback",
    "t-kw": "color: $kw",
    "t-num": "color: $num",
    "t-str": "color: $str",
    "t-com": "color: $com",
    "t-fn": "color: $fn",
}  # fmt: skip


def mid(tone: str) -> str:
    """The tone that reads on light and dark alike, as a hexadecimal colour."""
    return TONES[tone][0]


def variable(tone: str) -> str:
    """The tone as a CSS variable of the stand-alone page."""
    return f"var(--{tone})"


class Styler:
    """Turns style names into an attribute: inline declarations, or classes for the page's style sheet."""

    def __init__(self, *, page: bool) -> None:
        self.page = page
        self._made: dict[str, Markup] = {}

    def __call__(self, *names: str) -> Markup:
        """``style="…"`` or ``class="…"`` for these names; later names override earlier ones."""
        key = " ".join(names)
        if key not in self._made:
            if self.page:
                text = 'class="' + " ".join(f"n-{name}" for name in names) + '"'
            else:
                text = f'style="{_short("; ".join(_resolve(RULES[name], mid) for name in names))}"'
            # Both halves come from the tables above, never from a record.
            self._made[key] = Markup(text)
        return self._made[key]

    def bar(self, fate: str, share: float) -> Markup:
        """The filled part of a share bar: ``share`` is 0 to 1."""
        width = f"width: {max(4, min(100, round(100 * share)))}%"
        if self.page:
            return Markup(f'{self("fill", f"is-{fate}")} style="{width}"')
        return Markup(str(self("fill", f"is-{fate}"))[:-1] + f';{_short(width)}"')

    def tone(self, name: str) -> str:
        return variable(name) if self.page else mid(name)


def page_style_sheet() -> str:
    """The style sheet of the stand-alone page, both themes."""
    light = ";".join(f"--{name}:{tone[1]}" for name, tone in TONES.items())
    dark = ";".join(f"--{name}:{tone[2]}" for name, tone in TONES.items())
    rules = "\n".join(f".n-{name}{{{_resolve(rule, variable)}}}" for name, rule in RULES.items())
    layout = (
        files("nbcompile.view.html")
        .joinpath("templates", "page.css")
        .read_text("utf-8")
        .replace("$sans", SANS)
        .replace("$mono", MONO)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"{rules}\n{layout}"
    )


def _short(declarations: str) -> str:
    """Without the spaces: half of what a notebook holds of a fragment is styles."""
    return declarations.replace("; ", ";").replace(": ", ":").replace(", ", ",")


def _resolve(rule: str, colour: object) -> str:
    assert callable(colour)
    for name in sorted(TONES, key=len, reverse=True):
        rule = rule.replace(f"${name}", colour(name))
    return rule
