"""The three forms of a record: safe whatever it holds, bounded in size, complete, legible without styles."""

from __future__ import annotations

import base64
import dataclasses
import html.parser
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from nbcompile import view
from nbcompile.record.compilation import Cell, Compilation, GraphBreak, Guard, Kernel, Span
from nbcompile.units import clip_middle
from nbcompile.view.html.fragment import MAX_BYTES
from nbcompile.view.html.styles import RULES, TONES
from tests.nightly import few
from tests.view import fixtures
from tests.view.fixtures_hostile import NAMES, poisoned

RECORDS: dict[str, Callable[[], Compilation]] = {
    "transformer": fixtures.transformer,
    "break": fixtures.with_break,
    "failed": fixtures.failed,
    "large": fixtures.large,
    "empty": lambda: Compilation(id="e"),
    "hostile": fixtures.hostile,
    "no cell": lambda: fixtures.transformer(cell=None),
    "no times": lambda: fixtures.transformer(measurements=(), accuracy=()),
    "no graphs": lambda: fixtures.transformer(graphs=()),
}
every_record = pytest.mark.parametrize("record", [make() for make in RECORDS.values()], ids=list(RECORDS))

# What untrusted JupyterLab lets through of all that these views use.
TAGS = {
    "div",
    "p",
    "span",
    "b",
    "br",
    "table",
    "tr",
    "td",
    "th",
    "pre",
    "code",
    "details",
    "summary",
    "img",
}
ATTRIBUTES = {"style", "title", "open", "src", "width", "height", "alt"}
VOID = {"br", "img", "meta"}
PROPERTIES = re.compile(
    r"(color|background|background-color|border|border-(top|bottom|left|right|radius|collapse)|cursor|display|"
    r"font-(family|size|weight)|height|line-height|margin|margin-(top|right)|max-(width|height)|min-width|overflow|overflow-wrap|"
    r"padding|padding-top|table-layout|text-align|vertical-align|white-space|width)"
)


class Reader(html.parser.HTMLParser):
    """Collects what a browser would see, and insists that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: set[str] = set()
        self.sources: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.styles.update(value or "" for name, value in attrs if name == "style")
        self.sources += [value or "" for name, value in attrs if name == "src"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"unexpected </{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.problems == [] and reader.open == []
    return reader


def pictures(reader: Reader) -> list[str]:
    prefix = "data:image/svg+xml;base64,"
    assert all(source.startswith(prefix) for source in reader.sources)
    return [base64.b64decode(source.removeprefix(prefix)).decode() for source in reader.sources]


@every_record
def test_fragment_holds_only_what_an_untrusted_notebook_keeps(record: Compilation) -> None:
    reader = read(view.to_html(record))
    assert reader.tags <= TAGS
    assert reader.attributes <= ATTRIBUTES
    for style in reader.styles:
        for declaration in style.split(";"):
            name, value = declaration.split(":")
            assert PROPERTIES.fullmatch(name), declaration
            assert "var(" not in value and "url" not in value and "$" not in value, declaration


@every_record
def test_pictures_are_well_formed_and_inert(record: Compilation) -> None:
    for svg in pictures(read(view.to_html(record))):
        root = ET.fromstring(svg)
        assert len(svg) < 300_000
        for element in root.iter():
            assert element.tag.split("}")[-1] in {"svg", "title", "g", "rect", "circle", "path", "text"}
            assert not any(name.lower().startswith("on") or "href" in name for name in element.attrib)
            assert "var(" not in " ".join(element.attrib.values())


@every_record
def test_page_has_no_script_and_a_strict_policy(record: Compilation) -> None:
    page = view.to_page(record, fixtures.HOSTILE, script=False)
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in page and "prefers-color-scheme:dark" in page
    reader = read(re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))
    assert not reader.tags & {"script", "iframe", "link", "object", "form", "base"}
    assert not any(name.startswith("on") for name in reader.attributes)
    assert reader.sources == []


@every_record
def test_text_fits_in_100_columns_and_moves_no_cursor(record: Compilation) -> None:
    lines = view.to_text(record).rstrip("\n").split("\n")
    assert all(len(line) <= 100 for line in lines)
    assert all(character.isprintable() for line in lines for character in line)
    assert lines[0] in "".join(read(view.to_html(record)).words), "the same verdict first"


@few(4)
@every_record
def test_bundle_has_the_three_forms(record: Compilation) -> None:
    bundle = view.mime_bundle(record)
    assert set(bundle) == {view.MIME, "text/html", "text/plain"}
    assert type(bundle["text/html"]) is str, "not Markup, which escapes what it is added to"
    if "\ud800" not in record.id:
        json.dumps(bundle).encode()
        assert Compilation.from_dict(bundle[view.MIME]).id == record.id


def text_fields(value: object, path: str = "") -> list[str]:
    """Paths of every text in a record, through dataclasses, tuples and dicts."""
    if isinstance(value, str):
        return [path]
    if dataclasses.is_dataclass(value):
        return [
            p
            for f in dataclasses.fields(value)
            for p in text_fields(getattr(value, f.name), f"{path}.{f.name}")
        ]
    if isinstance(value, tuple):
        return [p for i, item in enumerate(value[:3]) for p in text_fields(item, f"{path}[{i}]")]
    if isinstance(value, dict):
        return [p for key, item in value.items() for p in text_fields(item, f"{path}[{key!r}]")]
    return []


@pytest.mark.parametrize("make", [fixtures.transformer, fixtures.with_break, fixtures.failed])
def test_no_text_of_a_record_becomes_markup(make: Callable[[], Compilation]) -> None:
    record = poisoned(make(), fixtures.HOSTILE, keep=NAMES)
    assert isinstance(record, Compilation)
    assert len(text_fields(record)) > 20
    fragment = view.to_html(record)
    reader = read(fragment)
    assert reader.tags <= TAGS and reader.attributes <= ATTRIBUTES
    assert "alert(1)" in "".join(reader.words), "shown, as text"
    for svg in pictures(reader):
        ET.fromstring(svg)
        assert "<script" not in svg and "<img" not in svg
    page = re.sub(r"<style>.*?</style>", "", view.to_page(record, script=False), flags=re.DOTALL)
    assert not read(page).tags & {"script", "img"}


def test_every_section_of_a_full_record_is_there() -> None:
    record = fixtures.transformer(
        breaks=fixtures.with_break().breaks,
        notes=("a note",),
        recompiles=fixtures.with_break().recompiles,
        autotune=fixtures.with_break().autotune,
    )
    words = "".join(read(view.to_html(record)).words)
    for part in (
        "2.3× faster than eager",
        "In [7]",
        "71.3 MB moved",
        "pays off after",
        "error 0.81× eager's",
        "Capture",
        "AOTAutograd",
        "Lower",
        "Fuse",
        "Codegen",
        "Build",
        "Run",
        "Your cell",
        "h = norm1(x + a)",
        "Fused program",
        "FX graph",
        "Fusion decisions: 7 of 10",
        "✓ fused",
        "✗ refused",
        "by you",
        "no epilogue on this target",
        "median of 200, spread p10–p90",
        "3,418 calls",
        "add_layer_norm",
        "float row[512]",
        "Loop program as text",
        "Accuracy",
        "Guards",
        "Recompiles",
        "Autotune",
        "Passes",
        "saved for the backward pass",
        "Environment",
        "gcc 12.2.0",
        "a note",
        "graph break",
        "cell line 3",
        "or move the print after the cell",
    ):
        assert part.replace(" ", "") in words.replace("\u00a0", " ").replace(" ", ""), part


def test_pictures_show_kernels_with_their_loops_and_calls() -> None:
    fused, fx = (svg for svg in pictures(read(view.to_html(fixtures.transformer())))[1:])
    for label in ("k0 add_layer_norm", "var", "rsqrt", "addmm", "sdpa", "x [16,64,512]"):
        assert f">{label}</text>" in fused, label
    assert ">line 3</text>" in fx and ">layer_norm</text>" in fx


def test_kernel_lines_name_the_cell_lines_they_serve() -> None:
    page = view.to_page(fixtures.transformer(), script=False)
    kernel = page[page.index("add_layer_norm_1</b>") :]
    gutter = re.search(r"that this line serves\">(.*?)</pre>", kernel, re.DOTALL)
    assert gutter and gutter.group(1).split("\n")[8] == "7"


def test_cell_lines_say_in_words_what_colours_say() -> None:
    rows = re.findall(r"<tr.*?</tr>", view.to_html(fixtures.with_break()), re.DOTALL)
    cell = {int(m.group(1)): row for row in rows if (m := re.search(r">(\d+)</td><td[^>]*><code", row))}
    assert "fused kernel" in cell[2] and "graph break" in cell[3] and "fallback" in cell[4]
    assert TONES["tint-break"][0] in cell[3] and TONES["tint-fallback"][0] in cell[4]


def test_indentation_survives_where_styles_are_stripped() -> None:
    record = Compilation(id="i", cell=Cell("%%compile\nfor i in y:\n    z = z + i"))
    assert "\u00a0\u00a0\u00a0\u00a0z" in "".join(read(view.to_html(record)).words)


def test_one_break_is_one_line_of_text() -> None:
    text = view.to_text(fixtures.with_break())
    assert "  x cell line 3: graph break: Tensor.item() needs the value while tracing" in text
    outside = Compilation(id="o", breaks=(GraphBreak("print", spans=(Span(7, file="/home/me/model.py"),)),))
    assert "  x model.py:7: graph break: print" in view.to_text(outside)


def test_a_thousand_nodes_are_quick_small_and_say_what_is_left_out() -> None:
    record = fixtures.large(1000)
    start = time.process_time()  # other work on this machine must not fail it
    fragment = view.to_html(record)
    assert time.process_time() - start < 2.0
    assert len(fragment.encode()) < MAX_BYTES
    reader = read(fragment)
    assert "more" in "".join(reader.words)
    for svg in pictures(reader):
        assert svg.count("<rect") <= 300


@pytest.mark.nightly
def test_huge_records_stay_below_the_limit() -> None:
    source = "float value = other[i] * 3.0f; // " + "x" * 900 + "\n"
    big = "y" * 2_000_000
    kernels = tuple(
        Kernel(
            f"g0.fw.k{i}",
            f"kernel_{i}_{big if i < 2 else ''}",
            "g0.fw.fused",
            (),
            "rows",
            {"c": source * 2000},
        )
        for i in range(60)
    )
    record = fixtures.transformer(
        kernels=kernels, notes=(big,) * 300, cell=Cell("%%compile\n" + "x = x + 1\n" * 20_000)
    )
    fragment = view.to_html(record)
    assert len(fragment.encode()) <= MAX_BYTES
    read(fragment)
    assert len(view.to_text(record)) < 20_000
    assert re.search(r"… [\d,]+ more", fragment)


def test_styles_name_only_known_tones() -> None:
    used = {name for rule in RULES.values() for name in re.findall(r"\$([a-z-]+)", rule)}
    assert used <= set(TONES)


@pytest.mark.parametrize("background", ["#ffffff", "#111111"])
def test_inline_tones_are_legible_on_light_and_dark(background: str) -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name in ("fused", "library", "fallback", "break", "dim", "kw", "num", "str", "com", "fn"):
        light, dark = sorted((luminance(TONES[name][0]), luminance(background)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3.7, name


def test_views_need_neither_torch_nor_ipython() -> None:
    code = (
        "import sys, nbcompile.view as v; from nbcompile.record.compilation import Compilation\n"
        "c = Compilation(id='x'); v.mime_bundle(c); v.to_page(c)\n"
        "print([m for m in ('torch', 'IPython', 'ipywidgets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_boxes_of_a_large_graph_count_kernels_below_and_ops_above() -> None:
    fused, captured = pictures(read(view.to_html(fixtures.large(1000))))[:2]
    notes = [re.findall(r">(\d+ [^<]* \+ [^<]*)</text>", picture) for picture in (fused, captured)]
    assert all(re.fullmatch(r"\d+ kernels? \+ \d+ calls?", note) for note in notes[0]) and notes[0]
    assert all(re.fullmatch(r"\d+ fused \+ \d+ library", note) for note in notes[1]) and notes[1]


def test_the_cell_scrolls_where_it_is_narrow_and_its_names_differ_where_they_are_cut() -> None:
    html = view.to_html(fixtures.transformer())
    assert re.search(r'<div style="overflow:auto"><table[^>]*>\s*<tr[^>]*><td[^>]*>1</td>', html)
    names = ("_log_softmax_backward_data_sum", "_log_softmax_backward_data_exp")
    first, second = (clip_middle(name, 18) for name in names)
    assert first != second and len(first) == len(second) == 18


def test_text_of_one_part_has_no_kernels_without_their_loops() -> None:
    text = view.to_text(fixtures.transformer(), show=("times",))
    assert "Timings" in text and "\nKernels" not in text and " 0 loops" not in text
    assert "\nKernels" in view.to_text(fixtures.transformer(), show=("kernels",))


def test_a_part_that_is_asked_for_is_in_the_text_in_the_programs_own_names() -> None:
    checks = ("___check_obj_id(G['torch'], …), type=<class 'module'>",)
    record = dataclasses.replace(
        fixtures.transformer(),
        guards=(Guard("g0", "ID_MATCH", "G['torch']", checks), Guard("g0", "SHAPE_ENV", "", ())),
    )
    assert "Guards" not in view.to_text(record) and "Passes" not in view.to_text(record)
    text = " ".join(view.to_text(record, ("guards",)).split())
    assert "the same object torch torch is the object that it was (module)" in text and "___check" not in text
    assert "___check" not in view.to_html(record) and "ID_MATCH" not in view.to_html(record)
    passes = view.to_text(record, ("passes",))
    assert all(each.name in passes for each in record.passes[:5]) and "Passes" in passes
    graphs = view.to_text(record, ("graph",))
    assert all(f"Graph {graph.id}" in graphs for graph in record.graphs)
    assert "Guards: none recorded" in view.to_text(dataclasses.replace(record, guards=()), ("guards",))
