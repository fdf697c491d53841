"""``nbcompile bench`` and ``nbcompile diff``: a suite run for real once, files held against each other."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nbcompile.bench.regressions.bench import CaseResult, SuiteRun
from nbcompile.bench.regressions.suite import SuiteSettings, chosen, load
from nbcompile.cli import main
from nbcompile.errors import SuiteError
from nbcompile.record.compilation import Compilation, GraphBreak, Measurement, Span

SUITE = """import os, nbcompile

def soft(x):
    y = x.softmax(-1)
    return y * 2

@nbcompile.case(rows=[16, 64])
def softmax(rows):
    import torch
    return soft, (torch.randn(rows, 32),), (torch.randn(rows + 1, 32),)

@nbcompile.case
def dies():
    os.abort()
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_suite_is_run_and_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "suite.py").write_text(SUITE)
    saved = tmp_path / "A.json"
    command = ["bench", str(tmp_path / "suite.py"), "--save", str(saved)]
    status = main([*command, "--only", "softmax[rows=16],dies", "--repeat", "1", "--budget", "0.05"])
    assert status == 1  # one fails
    said = capsys.readouterr()
    assert "softmax[rows=16], process 1 of 1…" in said.err
    bench = SuiteRun.read(saved)
    good, dies = bench.cases
    assert good.error == "" and good.record is not None
    assert len(good.record.recompiles) == 1 and len(good.processes) == 1
    own = next(m for m in good.processes[0] if m.contestant == "nbcompile")
    assert own.ran_compiled and own.steady and own.cold and own.threads == 1
    assert (good.line, dies.error) == (7, "its process died: killed by SIGABRT")
    rows = {line.split("  ")[0]: line for line in said.out.splitlines()}
    assert "2 graphs, 0 breaks, 1 recompile, 2 kernels" in rows["softmax[rows=16]"]
    assert "fails: its process died: killed by SIGABRT" in rows["dies"]
    assert main(["diff", str(saved), str(saved)]) == 0
    assert SuiteRun.read(saved).to_json() == saved.read_text()


def measured(
    name: str, times: list[float], *, eager: float = 1.0, cold: float = 1.0, **fields: object
) -> CaseResult:
    """A case whose processes took these times a call."""
    processes = tuple(
        (
            Measurement("forward", "eager", steady=(eager,) * 5, ran_compiled=False),
            Measurement("forward", "nbcompile", steady=(seconds,) * 5, cold=cold),
        )
        for seconds in times
    )
    record = Compilation("r", measurements=processes[0])
    record = dataclasses.replace(record, **fields)  # type: ignore[arg-type]
    return CaseResult(name, 3, record, processes)


def saved(folder: Path, name: str, *cases: CaseResult) -> str:
    path = folder / name
    path.write_text(SuiteRun("suite.py", "/project", SuiteSettings(), cases).to_json())
    return str(path)


SLOW = measured("a", [2.0, 2.01, 1.99, 2.0])
FAST = measured("a", [1.0, 1.01, 0.99, 1.0])


def test_slower_beyond_noise_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = saved(tmp_path, "A.json", FAST), saved(tmp_path, "B.json", SLOW)
    assert main(["diff", before, after]) == 1
    said = capsys.readouterr().out
    assert (
        "✗ time         suite.py:3: one call takes 2 s, took 1 s, 2.0× (1.96 to 2.04, 99% interval)" in said
    )
    assert said.endswith("1 regression, 0 improvements in 1 case\n")
    assert main(["diff", before, after, "--fail-on", "breaks,kernels"]) == 0
    assert main(["diff", before, after, "--threshold", "1.5"]) == 0
    assert main(["diff", after, before]) == 0
    assert "✓ time         suite.py:3: one call takes 1 s, took 2 s, 0.5×" in capsys.readouterr().out


def test_a_machine_that_is_slower_as_a_whole_is_no_regression(tmp_path: Path) -> None:
    before = saved(tmp_path, "A.json", FAST)
    after = saved(tmp_path, "B.json", measured("a", [2.0, 2.01, 1.99, 2.0], eager=2.0))
    assert main(["diff", before, after]) == 0


def test_slower_compiles_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = saved(tmp_path, "A.json", FAST)
    after = saved(tmp_path, "B.json", measured("a", [1.0, 1.01, 0.99, 1.0], cold=1.5))
    assert main(["diff", before, after]) == 1
    assert "✗ compile-time suite.py:3: compiling takes 1.5 s, took 1 s" in capsys.readouterr().out
    assert main(["diff", before, after, "--compile-threshold", "0.6"]) == 0


def test_times_of_other_machines_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert SLOW.record is not None
    elsewhere = dataclasses.replace(SLOW.record.environment, processor="another", torch="9.9")
    there = dataclasses.replace(SLOW, record=dataclasses.replace(SLOW.record, environment=elsewhere))
    assert main(["diff", saved(tmp_path, "A.json", FAST), saved(tmp_path, "B.json", there)]) == 0
    said = capsys.readouterr().out
    assert "times are not compared, for the machines differ: processor another (was )" in said
    assert "torch 9.9, was " in said


BROKEN = measured(
    "a", [1.0] * 3, breaks=(GraphBreak("a 100% break,\nhere", spans=(Span(4, file="/project/m.py"),)),)
)


def test_github_annotations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = saved(tmp_path, "A.json", FAST), saved(tmp_path, "B.json", BROKEN)
    assert main(["diff", *files, "--format", "github"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "::error file=m.py,line=4,title=a%3A breaks::new graph break: a 100%25 break, here"
    assert main(["diff", *files, "--format", "github", "--fail-on", "none"]) == 0
    assert capsys.readouterr().out.startswith("::warning file=m.py,line=4")


def test_json_and_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = saved(tmp_path, "A.json", FAST), saved(tmp_path, "B.json", BROKEN)
    assert main(["diff", *files, "--format", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["fails"] and said["cases"] == 1
    assert said["found"][0] == {
        "case": "a",
        "kind": "breaks",
        "verdict": "regression",
        "message": "new graph break: a 100% break, here",
        "file": "m.py",
        "line": 4,
    }
    main(["diff", *files, "--format", "markdown"])
    assert "| a | breaks | m.py:4 | new graph break: a 100% break, here |" in capsys.readouterr().out


def test_cases_that_come_go_fail_and_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails = CaseResult("b", 9, error="TypeError: no")
    before = saved(
        tmp_path, "A.json", FAST, dataclasses.replace(FAST, name="b"), dataclasses.replace(FAST, name="c")
    )
    after = saved(tmp_path, "B.json", FAST, fails, dataclasses.replace(FAST, name="d"))
    assert main(["diff", before, after, "--fail-on", "error"]) == 1
    said = capsys.readouterr().out
    assert "b\n  ✗ error        suite.py:9: fails: TypeError: no\n" in said
    assert "c\n  ✗ cases        suite.py:3: the case is gone\n" in said
    assert "d\n  · cases        suite.py:3: new case\n" in said
    assert main(["diff", after, before, "--fail-on", "error"]) == 0
    assert "✓ error        suite.py:3: works, failed before: TypeError: no" in capsys.readouterr().out


def test_what_only_left_out_is_not_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = saved(tmp_path, "A.json", FAST, dataclasses.replace(FAST, name="b"))
    after = tmp_path / "B.json"
    after.write_text(SuiteRun("suite.py", "/project", SuiteSettings(only="a"), (FAST,)).to_json())
    assert main(["diff", before, str(after)]) == 0
    assert capsys.readouterr().out == "0 regressions, 0 improvements in 1 case\n"


def test_records_saved_by_themselves_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, case in (("A.json", FAST), ("B.json", BROKEN)):
        assert case.record is not None
        (tmp_path / name).write_text(case.record.to_json())
    assert main(["diff", str(tmp_path / "A.json"), str(tmp_path / "B.json")]) == 1
    assert "m.py:4: new graph break" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "this is not an nbcompile record"),
        ('{"schema": "nbcompile.bench/9"}', "upgrade nbcompile"),
        ('{"schema": "nbcompile.bench/1"}', "is damaged"),
        (
            '{"schema": "nbcompile.bench/1", "suite": "s", "root": "", "settings": {}, "cases": [{}]}',
            "field cases.0",
        ),
    ],
)
def test_bad_files_are_status_two(
    tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "A.json").write_text(text)
    assert main(["diff", str(tmp_path / "A.json"), str(tmp_path / "A.json")]) == 2
    said = capsys.readouterr().err
    assert says in said and said.startswith("nbcompile: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["diff", "a"], ["diff", "a", "b", "--fail-on", "speed"], ["bench", "s.py", "--repeat", "0"],
     ["bench", "s.py", "-o", "fuse"]],
)  # fmt: skip
def test_bad_arguments_are_status_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["diff", "/nowhere/A.json", "/nowhere/B.json"], "cannot be read: No such file"),
        (["bench", "s.py", "--backend", "nowhere"], "backend 'nowhere' is unknown"),
        (["bench", "s.py", "-o", "nonsense=1"], "option 'nonsense' is unknown"),
        (["bench", "s.py", "--save", "/nowhere/A.json"], "there is no such folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_the_command_starts_without_torch() -> None:
    code = (
        "import sys, nbcompile.cli as c\n"
        "try: c.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0 and "bench" in run.stdout, run.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "suite.py has no case. Mark a function with @nbcompile.case."),
        ("import nbcompile\n\n1 / 0", "line 3: suite.py cannot be run: ZeroDivisionError: division by zero"),
        ("def f(:", "line 1: suite.py cannot be run: SyntaxError"),
    ],
)
def test_a_suite_that_cannot_be_loaded_says_where(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "suite.py").write_text(text)
    with pytest.raises(SuiteError) as error:
        load(tmp_path / "suite.py")
    assert str(error.value).startswith(says)


def test_names_are_chosen() -> None:
    names = ["a[n=1]", "a[n=2]", "ab", "c"]
    assert chosen(names, "") == names
    assert chosen(names, "a") == ["a[n=1]", "a[n=2]"]
    assert chosen(names, "a[n=2], c") == ["a[n=2]", "c"]
    assert chosen(names, "a*") == ["a[n=1]", "a[n=2]", "ab"]
    assert chosen(names, "a[*") == ["a[n=1]", "a[n=2]"]


def test_a_case_must_return_a_program(tmp_path: Path) -> None:
    (tmp_path / "suite.py").write_text("import nbcompile\n@nbcompile.case\ndef f():\n    return 3\n")
    with pytest.raises(SuiteError, match="case f returned int, not a function and its inputs"):
        load(tmp_path / "suite.py")[0].make()


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    said = capsys.readouterr().out
    assert end.value.code == 0
    assert said.startswith("nbcompile ") and f"torch {torch.__version__}" in said and "Python 3." in said
