"""Sphinx's configuration. ``scripts/docs.py`` puts the pages together and runs it; see there."""

import os
import re
import sys
from pathlib import Path

ROOT = Path(os.environ["NBCOMPILE_ROOT"])
sys.path.insert(0, str(ROOT))

project = "nbcompile"
copyright = "the nbcompile authors"
version = release = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]

smartquotes = False  # they would make a dash of two hyphens, which options begin with
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["screenshots/README.md"]
suppress_warnings = ["myst.header"]  # generated sections, and notebooks that begin below their title

myst_enable_extensions = ["deflist", "attrs_inline"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": True}
add_module_names = False
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"nbcompile {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, 'DejaVu Sans', sans-serif",
                            "font-stack--monospace": "ui-monospace, 'DejaVu Sans Mono', monospace"},
}  # fmt: skip
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div.highlight:not(.output .highlight) pre"

_PARAMETER = re.compile(r"^(\w+(?:, \w+)*):\s+(\S.*)$")


def as_fields(app, what, name, obj, options, lines):
    """Lines ``name: what it is`` of our docstrings, continued by deeper ones, become a list of fields."""
    out, inside = [], False
    for line in lines:
        found = _PARAMETER.match(line)
        if found:
            if not inside and out and out[-1]:
                out.append("")
            names = ", ".join(f"**{each}**" for each in found[1].split(", "))
            out.append(f"- {names}: {found[2]}")
            inside = True
        elif inside and line.startswith(" "):
            out.append("  " + line.strip())
        else:
            if inside and line:
                out.append("")
            inside = inside and not line
            out.append(line)
    lines[:] = out


def setup(app):
    app.connect("autodoc-process-docstring", as_fields)
