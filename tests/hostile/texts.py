# ruff: noqa: E501  (a table: a line a row)
"""Texts that are something else to whoever takes them for more than text. Each sets the canary where it runs."""

from __future__ import annotations

MARK = "strangersays"
"""In every tag, attribute and address that a hostile text would make: no HTML of ours may have it there."""

_RUN = f"window.canary='{MARK}'"

TEXTS: dict[str, str] = {
    "a script": f"<script id={MARK}>{_RUN};alert(1)</script>",
    "an end of a script": f"</script><script>{_RUN}</script><!--<script>{MARK}",
    "an end of everything": f"</pre></title></style></textarea></noscript></details><{MARK}><img src=x onerror={_RUN}>",
    "an image that fails": f"<img src=//{MARK}.invalid/x onerror=\"{_RUN}\">",
    "an svg that loads": f"<svg onload={_RUN}><a href=\"javascript:{_RUN}\"><{MARK}/></a></svg>",
    "a frame": f"<iframe srcdoc=\"<script>top.canary='{MARK}'</script>\" src=//{MARK}.invalid/></iframe>",
    "an address": f"javascript:{_RUN}//",
    "a data address": f"data:text/html,<script>top.canary='{MARK}'</script>",
    "an attribute": f"\" onmouseover=\"{_RUN}\" onfocus='{_RUN}' autofocus {MARK}='",
    "a style": f"x;}}*{{background:url(//{MARK}.invalid/)}}\";background:url(//{MARK}.invalid/);position:fixed;",
    "a template": f"{{{{7*7}}}}{{% set x={_RUN} %}}${{{_RUN}}}`+{_RUN}+`",
    "an entity": f"&lt;script&gt;{_RUN}&lt;/script&gt;&#60;img src=x onerror={_RUN}&#62;&{MARK};",
    "a terminal": f"\x1b]0;{MARK}\x07\x1b[2J\x1b[31m\r\x08\x9b",
    "a turned text": f"access\u202e\u2066// {MARK} \u2069\u2066\u200b\u200f\u061c",
    "a nul": f"\x00{MARK}\x00",
    "a lone surrogate": f"\ud800{MARK}\udfff",
    "a prototype": "__proto__",
    "a line end": f"\u2028{MARK}\u2029\n\r\n\x85\x0b\x0c{MARK}",
    "a formula": f"=HYPERLINK(\"//{MARK}.invalid\")",
    "a path": f"../../../../tmp/{MARK}\\..\\..\\{MARK}:/etc/passwd",
}  # fmt: skip

LONG = ("<b>" + MARK + " " + "\u0301" * 40) * 4_000
"""Two hundred thousand characters, most of them marks that stand on the one before."""

ALL = " ".join(text for name, text in TEXTS.items() if name != "a prototype")
