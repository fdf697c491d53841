"""Guards, graph breaks and recompiles, from the texts that Dynamo writes of them."""

from __future__ import annotations

import json
import re

from nbcompile.record.compilation import GraphBreak, Guard, Recompile, Span
from nbcompile.traces.reading.values import CompileFailure

MOST_GUARDS = 5_000
_BRANCH = re.compile(r"^[| ]*\+- (?P<kind>\w+): (?P<code>.*)$")
_SOURCE = re.compile(r"^source=(?P<name>.*?), accessed_by=")
_NAME = re.compile(r"\b[LG](?:\['[^']*'\]|\.\w+|\[\d+\])+(?:(?:\.\w+)|(?:\['[^']*'\])|(?:\[\d+\]))*")
_PLACE = re.compile(r"#\s*(?P<file>\S[^#]{0,400}?):(?P<line>\d{1,9}) in (?P<function>\S+)\s*$")
_BROKE = re.compile(r"Graph break in user code at (?P<file>.{1,1000}?):(?P<line>\d{1,9})")
_REASON = re.compile(r"^Graph Break Reason:(?P<rest>.*)$", re.MULTILINE)
_HINT = re.compile(r"^\s+Hint: (.*)$", re.MULTILINE)
_EXPLANATION = re.compile(r"^\s+Explanation: (.*)$", re.MULTILINE)
_USER_FRAME = re.compile(r'^  File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,9})', re.MULTILINE)


def guards_of(text: str, graph: str) -> list[Guard]:
    """Of the tree that Dynamo prints, its leaves: each a condition, under the source it is about."""
    if text.lstrip().startswith("["):
        return _listed_guards(text, graph)
    found: list[Guard] = []
    source = ""
    for line in text.splitlines():
        branch = _BRANCH.match(line)
        if branch is None or len(found) >= MOST_GUARDS:
            continue
        code = branch["code"]
        named = _SOURCE.match(code)
        if named:  # a manager: what it manages follows below it
            source = named["name"]
            continue
        if branch["kind"] in ("RootGuardManager", "GuardManager", "DictGuardManager"):
            continue
        condition = code.split("  # ", 1)[0].strip()
        name = _NAME.search(condition)
        place = _PLACE.search(code)
        spans = (Span(int(place["line"]), file=place["file"]),) if place else ()
        found.append(Guard(graph, branch["kind"], name[0] if name else source, (condition,), spans))
    return found


def _listed_guards(text: str, graph: str) -> list[Guard]:
    """The form of older torch: a list of JSON."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return []
    codes = [str(each.get("code", "")) for each in told if isinstance(each, dict)][:MOST_GUARDS]
    return [Guard(graph, "GUARD", name[0] if (name := _NAME.search(code)) else "", (code,)) for code in codes]


def break_of(text: str, graph: str, failure: CompileFailure | None = None) -> GraphBreak:
    """A graph break, from the text of its artifact, or from the failure that it ended in."""
    place = _BROKE.search(text)
    reason = _REASON.search(text)
    body = text[reason.start("rest") :] if reason else text
    # The first paragraph says what Dynamo was doing, the second what it met.
    lines = [line.strip() for line in body.split("\n\n", 1)[-1 if reason else 0].splitlines() if line.strip()]
    kind = lines[0] if lines else ""
    explained = _EXPLANATION.search(text)
    user = place or _user_place(text)
    span = (Span(int(user["line"]), file=user["file"]),) if user else ()
    if failure is not None and failure.file:
        span = (Span(failure.line, file=failure.file),)
    return GraphBreak(
        reason=f"{kind}: {explained[1]}" if explained else kind,
        hint=" ".join(dict.fromkeys(_HINT.findall(text.split("\nUser code traceback", 1)[0]))),
        kind=kind,
        after_graph=graph,
        spans=span,
    )


def _user_place(text: str) -> re.Match[str] | None:
    found = list(_USER_FRAME.finditer(text.partition("\nTraceback ")[0]))
    return found[-1] if found else None


def recompile_of(text: str, function: str) -> Recompile:
    """Why the code that there was did not do: the guard that failed."""
    first = text.strip().split("\n", 1)[0]
    place = _PLACE.search(first)
    condition = first.split("  # ", 1)[0].strip()
    spans = (Span(int(place["line"]), file=place["file"]),) if place else ()
    return Recompile(condition, function, "g0", spans)
