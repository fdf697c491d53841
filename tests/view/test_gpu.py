"""What a reader sees of code for a GPU: listings, launches, the roofline, searches, and how it ran."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nbcompile import view
from nbcompile.record.compilation import Accuracy, Ceilings, Compilation, Launched
from nbcompile.view.drawing.roofline import roofline, roofline_picture, table
from nbcompile.view.drawing.svg import CHARACTER
from nbcompile.view.facts.assembly import listing, source_lines
from nbcompile.view.facts.kernels import ARTIFACT_CHARACTERS, launch_facts
from nbcompile.view.html.styles import mid
from tests.view import fixtures_gpu as fixtures
from tests.view.test_views import ATTRIBUTES, TAGS, pictures, read

NS = "{http://www.w3.org/2000/svg}"


def test_a_listing_leaves_out_what_no_person_reads() -> None:
    ptx = listing("ptx", fixtures.PTX)
    assert not [
        line for line in ptx.lines if ".loc" in line or "debug" in line or "$L__tmp" in line or ".b8" in line
    ]
    assert any("max.f32" in line for line in ptx.lines) and ptx.lines[-1] == "}"
    sass = listing("sass", fixtures.SASS)
    assert sass.lines[-2:] == ("0000  LDC R1, c[0x0][0x28] ;", "0010  EXIT ;")
    assert "loc" not in "\n".join(listing("ttir", fixtures.TTIR).lines)
    llvm = "\n".join(listing("llir", fixtures.LLIR).lines)
    assert "!dbg" not in llvm and "declare" not in llvm and llvm.endswith("ret void\n}")
    assert listing("c", "a\nb\n").lines == ("a", "b")


def test_a_line_of_ptx_knows_its_line_of_triton_through_inlined_functions() -> None:
    found = listing("ptx", fixtures.PTX)
    places = {row.shown: row.place for row in found.rows}
    assert places["  mov.u32   %r9, %ctaid.x;"] == ("softmax_mul", 1)
    assert places["  max.f32   %r1, %r2, %r3;"] == ("softmax_mul", 5)  # not line 170 of Triton's own library
    html = view.to_html(fixtures.gpu())
    gutters = re.findall(r"line of the source above\">([^<]*)<", html)
    assert ["7", "8", "12"] in [gutter.split() for gutter in gutters]
    # HTML drops a line break right after <pre>, and each number would stand one line too high.
    assert not re.search(r"<pre[^>]*>\n", html)


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_every_text_that_triton_makes_knows_the_lines_of_its_source(target: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    texts = fixtures.compiled_texts(target, str(tmp_path))
    source = texts["triton"].split("\n")
    stores = {
        "ttir": "tt.store", "ttgir": "tt.store|buffer_store",
        "llir": r"st\.global|raw\.ptr\.buffer\.store|store <",
        "ptx": r"st\.global", "amdgcn": "(global|buffer)_store_",
    }  # fmt: skip
    for language in texts.keys() & stores.keys():
        found = listing(language, texts[language])
        lines = source_lines(found, texts["triton"])
        pairs = zip(found.rows, lines, strict=True)
        made = {
            line for row, line in pairs
            if re.search(stores[language], row.text) and "addrspace(3)" not in row.text
        }  # fmt: skip
        assert {source[line - 1].strip()[:8] for line in made} == {"tl.store"}, language


def test_the_scene_says_which_lines_of_a_text_to_show_and_what_they_were_made_for() -> None:
    record = fixtures.gpu()
    kernel = next(kernel for kernel in record.kernels if "ptx" in kernel.sources)
    code = next(item for item in view.whole(record)["view"]["kernels"] if item["kernel"] == kernel.id)
    assert [text["title"] for text in code["texts"]][:2] == ["Triton", "Triton IR"]
    for text in code["texts"][1:]:
        whole = kernel.sources[text["language"]].split("\n")
        shown, at = [], -1
        for skip, cut in zip(text["skipped"], text["cuts"], strict=True):
            at += skip + 1
            line = whole[at]
            for start, end in reversed(list(zip(cut[::2], cut[1::2], strict=True))):
                line = line[:start] + line[end:]
            shown.append(line.rstrip().replace("\t", "  "))
        assert tuple(shown) == listing(text["language"], kernel.sources[text["language"]]).lines
        assert len(text["made"]) == len(shown)


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_texts_that_triton_made_are_shown_and_stay_small(target: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    texts = fixtures.compiled_texts(target, str(tmp_path))
    record = fixtures.gpu(texts, target)
    html = view.to_html(record)
    reader = read(html)
    assert reader.tags <= TAGS and reader.attributes <= ATTRIBUTES
    for title in ("Triton IR", "Triton GPU IR", "LLVM IR", "PTX" if target == "cuda:90" else "AMDGCN"):
        assert f"<b>{title}</b>" in html
    assert "max.f32" in html if target == "cuda:90" else "v_max_f32" in html
    assert len(html.encode()) < 150_000
    assert len(json.dumps(view.payload(record))) < 0.4 * sum(map(len, texts.values()))
    assert Compilation.from_json(record.to_json()) == record


def test_texts_of_many_kernels_share_a_budget_and_the_record_has_them_whole() -> None:
    long = "\n".join(f"  add.f32 %f{n}, %f{n + 1}, %f{n + 2};" for n in range(2000))
    record = fixtures.gpu({"triton": fixtures.TRITON, "ptx": long, "llir": long})
    (one,) = record.kernels
    many = dataclasses.replace(
        record, kernels=tuple(dataclasses.replace(one, id=f"g0.fw.k{n}") for n in range(20))
    )
    single, html = view.to_html(record), view.to_html(many)
    assert "… 1,600 more" in single and "the record has all of it" in single
    assert html.count("add.f32") * len("  add.f32 %f100, %f101, %f102;") < 1.2 * ARTIFACT_CHARACTERS
    assert len(html.encode()) < 400_000
    assert Compilation.from_json(many.to_json()).kernels[7].sources["ptx"] == long


def test_a_launch_is_told_in_words_and_spills_stand_out() -> None:
    launched = Launched("f", (8192, 4), {"block": 256}, 8, 3, 255, 49152, 128)
    facts = dict(launch_facts(launched))
    assert list(facts) == ["grid 8,192 × 4", "block=256", "8 warps", "3 stages", "255 registers a thread",
                           "49.2 kB shared memory", "spills 128 B a thread"]  # fmt: skip
    assert [words for words, bad in facts.items() if bad] == ["spills 128 B a thread"]
    assert dict(launch_facts(Launched("f", (1,), {}))) == {"grid 1": False}, "what is not known is not said"
    record = fixtures.gpu()
    (kernel,) = record.kernels
    spills = dataclasses.replace(record, kernels=(dataclasses.replace(kernel, launches=(launched,)),))
    assert "spills 128 B a thread" in view.to_html(spills) and "! spills 128 B" in view.to_text(spills)
    assert "no spills" in view.to_html(record)


def test_a_schedule_is_named_whole_and_explained() -> None:
    record = fixtures.gpu()
    (kernel,) = record.kernels
    name = "rows shared by 4 programs, partial sums over rows"
    shown = dataclasses.replace(record, kernels=(dataclasses.replace(kernel, schedule=name),))
    assert name in view.to_text(shown)
    html = view.to_html(shown)
    assert "<b>rows shared by 4 programs</b>: each holds a part" in html and "<b>partial sums over" in html


def test_code_for_a_chip_that_is_not_here_says_so_first() -> None:
    record = fixtures.gpu()
    says = "compiled for NVIDIA H100 SXM (cuda:90), which is not here: the cell ran eagerly"
    assert view.to_text(record).splitlines()[0] == says
    assert says in view.to_html(record)
    assert "faster" not in view.to_html(record) and "Timings" not in view.to_text(record)
    left = "graph g0.fw runs eagerly: it was compiled for NVIDIA H100 SXM, and its tensors are on the CPU"
    here = dataclasses.replace(record, notes=(left,))
    says = "compiled for NVIDIA H100 SXM (cuda:90), and its tensors are on the CPU: the cell ran eagerly"
    assert view.to_text(here).splitlines()[0] == says


@pytest.mark.parametrize(
    ("accuracy", "says"),
    [
        ((Accuracy("nbcompile", "output", 1e-7, 1e-7),), "run by Triton's interpreter, agree with eager"),
        (
            (Accuracy("nbcompile", "z", 0.5, 1e-7, agrees=False),),
            "in Triton's interpreter, differs from eager in z",
        ),
        ((), "not compared with eager"),
    ],
)
def test_the_interpreters_results_are_checked_in_the_verdict(
    accuracy: tuple[Accuracy, ...], says: str
) -> None:
    record = fixtures.gpu(execution="interpreted", accuracy=accuracy)
    assert says in view.to_text(record).splitlines()[0]


def test_the_roofline_is_a_table_and_a_sentence() -> None:
    record = fixtures.gpu()
    (kernel,) = record.kernels
    timed = dataclasses.replace(record, kernels=(dataclasses.replace(kernel, seconds=5e-5),))
    roof = roofline(timed)
    assert roof is not None
    assert "1 of 1 kernel bound by memory" in roof.summary and "78% of the limit" in roof.summary
    figures = table(roof, 99)
    assert figures.heads[-3:] == ("predicted", "measured", "of the limit")
    assert figures.rows == (("k0 softmax_mul", "131 MB", "164 Mflop", "1.2", "memory", "39.1 µs", "41.1 µs",
                             "50 µs", "78%"),)  # fmt: skip
    untimed = roofline(record)
    assert untimed is not None and table(untimed, 99).heads[-1] == "predicted", "no column that says nothing"
    assert "measured 50 µs, 78% of the limit" in view.to_html(timed)
    assert "predicted 41.1 µs" in view.to_html(record)
    assert "78%" in view.to_text(timed) and all(len(line) <= 100 for line in view.to_text(timed).splitlines())


def test_no_roofline_without_rates_but_with_measured_ones() -> None:
    record = fixtures.gpu()
    (kernel,) = record.kernels
    here = dataclasses.replace(
        record, kernels=(dataclasses.replace(kernel, target="cpu"),), execution="compiled"
    )
    assert roofline(here) is None and "Roofline" not in view.to_html(here)
    measured = dataclasses.replace(here, ceilings=(Ceilings("cpu", 2e10, 1e11, 1e11, "measured"),))
    roof = roofline(measured)
    assert roof is not None and roof.title == "this CPU, measured rates"
    assert "20 GB/s memory" in pictures(read(view.to_html(measured)))[-1]


def test_a_kernel_that_is_mostly_launched_says_so_and_leaves_the_plot_to_the_others() -> None:
    record = fixtures.gpu()
    (kernel,) = record.kernels
    small = dataclasses.replace(kernel, id="g0.fw.k1", name="one", bytes_read=4, bytes_written=4, flops=1)
    both = dataclasses.replace(record, kernels=(kernel, small))
    roof, alone = roofline(both), roofline(record)
    assert roof is not None and alone is not None
    # 39.1 µs and 2.4 ps of work, and two launches of 2 µs
    assert roof.summary == (
        "1 of 2 kernels bound by memory, 1 by launching; all together at least 39.1 µs, predicted 43.1 µs"
    )
    figures = table(roof, 99)
    assert [row[figures.heads.index("bound by")] for row in figures.rows] == ["memory", "launch"]

    def decades(picture: str) -> set[str]:
        return set(re.findall(r">(10{0,2} [GT])</text>", picture))

    picture = roofline_picture(roof, mid).svg
    assert decades(picture) >= decades(roofline_picture(alone, mid).svg) and "M</text>" not in picture
    assert picture.count("<circle") == 2 and "mostly launching" in picture, "a dot and the legend's"
    # Where nothing else is to be seen, it has the plot.
    (only,) = (roofline(dataclasses.replace(record, kernels=(small,))),)
    assert only is not None and only.summary.startswith("1 of 1 kernel bound by launching")
    assert "mostly launching" not in roofline_picture(only, mid).svg


@pytest.mark.parametrize("count", [1, 60])
@pytest.mark.parametrize("measured", [False, True])
def test_the_plot_has_a_dot_for_every_kernel_and_no_label_on_another(count: int, measured: bool) -> None:
    roof = roofline(fixtures.many(count, measured=measured))
    assert roof is not None
    picture = roofline_picture(roof, mid)
    root = ET.fromstring(picture.svg)
    assert len(table(roof, 1000).rows) == count
    texts = [(e.text or "", float(e.get("x", 0)), float(e.get("y", 0)), e.get("text-anchor", "start"))
             for e in root.iter(f"{NS}text")]  # fmt: skip
    labels = [item for item in texts if re.fullmatch(r"k\d+(, k\d+)*( \+\d+)?", item[0])]
    assert labels
    boxes = []
    for text, x, y, anchor in labels:
        left = x if anchor == "start" else x - len(text) * CHARACTER
        boxes.append((left, y - 8, left + len(text) * CHARACTER, y))
        assert left >= 0 and left + len(text) * CHARACTER <= picture.width + 12 and 0 < y < picture.height
    for n, a in enumerate(boxes):
        for b in boxes[n + 1 :]:
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])
    dots = list(root.iter(f"{NS}circle"))
    for dot in dots:
        assert (
            0 <= float(dot.get("cx", -1)) <= picture.width and 0 <= float(dot.get("cy", -1)) <= picture.height
        )
    assert len(picture.svg) < 20_000
    full = {dot.get("fill") != "none" for dot in dots}
    assert full == {measured}, "measured ones are full, predicted ones rings"


def test_a_search_is_sorted_its_choice_marked_and_a_long_one_folded() -> None:
    html, text = view.to_html(fixtures.searched(30)), view.to_text(fixtures.searched(30))
    assert "30 candidates measured for 1 kernel" in html and "slower candidates</summary>" in html
    assert html.count("✓ chosen") == 1
    times = [float(found) for found in re.findall(r"^   [✓ ]\s+([\d.]+) µs", text, re.M)]
    assert len(times) >= 5 and times == sorted(times)
    assert "1 without a time" in text and "✓" in text
    few = view.to_html(fixtures.searched(4))
    assert "slower candidates" not in few and "out of shared memory" in few


def test_the_record_says_how_the_kernels_ran() -> None:
    record = fixtures.gpu(ceilings=(Ceilings("cuda:90", 3e12, 6e13, 9e14, "measured", "H100"),))
    data = json.loads(record.to_json())
    assert data["execution"] == "eager" and data["ceilings"][0]["bandwidth"] == 3e12
    assert Compilation.from_json(record.to_json()) == record
