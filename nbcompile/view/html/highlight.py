"""Source text to HTML with quiet colours: keywords, numbers, strings, comments, called names.

Uses pygments' lexers with a formatter of our own: five tones instead of a theme, because the text must read
on light and dark pages alike, and runs of equal tone share one ``<span>`` to keep outputs small.
"""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

from nbcompile.view.html.styles import Styler

_LEXERS = {"c": "c", "c++": "cpp", "cpp": "cpp", "triton": "python", "python": "python", "ptx": "ptx",
           "llvm": "llvm", "llir": "llvm", "amdgcn": "amdgpu", "asm": "gas"}  # fmt: skip
MAX_CHARACTERS = 60_000
"""Beyond this a text is shown plain: lexers take about a second a megabyte."""


def highlight_lines(text: str, language: str, css: Styler) -> list[Markup]:
    """``text`` as escaped, coloured HTML, one entry a line. ``language`` is a key of a kernel's sources,
    ``"python"``, or ``"ir"`` for the text of a stage; unknown languages come back plain."""
    if language == "ir":
        return [_ir_line(line, css) for line in text.split("\n")]
    lexer = _lexer(_LEXERS.get(language.lower(), ""))
    if lexer is None or len(text) > MAX_CHARACTERS:
        return [escape(line) for line in text.split("\n")]
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in lexer.get_tokens(text):
        tone = _tone(kind)
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append([])
            row = lines[-1]
            # White space takes the tone before it, so that a run is not cut at every blank.
            if piece and row and (row[-1][0] == tone or piece.isspace()):
                row[-1] = (row[-1][0], row[-1][1] + piece)
            elif piece:
                row.append((tone, piece))
    wanted = text.count("\n") + 1
    rows = lines[:wanted] + [[]] * (wanted - len(lines))
    return [Markup("").join(_span(tone, piece, css) for tone, piece in row) for row in rows]


def _ir_line(line: str, css: Styler) -> Markup:
    """The texts of the stages, thousands of lines of them: only comments are set apart."""
    code, mark, comment = line.partition("# ")
    return escape(code) + (_span("com", mark + comment, css) if mark else Markup(""))


def _span(tone: str, piece: str, css: Styler) -> Markup:
    if not tone or (tone == "num" and not css.page):  # inline, a colour takes 40 bytes for every number
        return escape(piece)
    return Markup("<span {}>{}</span>").format(css(f"t-{tone}"), piece)


@lru_cache(maxsize=256)
def _tone(kind: _TokenType) -> str:
    if kind in Token.Comment.Preproc or kind in Token.Comment.PreprocFile:
        return "kw"
    for parent, tone in (
        (Token.Comment, "com"),
        (Token.Keyword, "kw"),
        (Token.Operator.Word, "kw"),
        (Token.Literal.Number, "num"),
        (Token.Literal.String, "str"),
        (Token.Name.Function, "fn"),
        (Token.Name.Decorator, "kw"),
    ):
        if kind in parent:
            return tone
    return ""


@lru_cache(maxsize=16)
def _lexer(name: str) -> Lexer | None:
    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False) if name else None
    except ClassNotFound:
        return None
