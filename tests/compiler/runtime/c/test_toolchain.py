from __future__ import annotations

import ctypes
import math
import os
import platform
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from nbcompile.compiler.runtime.c import toolchain as module
from nbcompile.compiler.runtime.c.toolchain import find_toolchain, first_error
from nbcompile.errors import ToolchainError

GLIBC_X86 = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"


def _program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _load(tmp_path: Path, source: str) -> ctypes.CDLL:
    out = tmp_path / "kernel.so"
    find_toolchain().compile(source, out)
    return ctypes.CDLL(str(out))


def test_compiles_and_loads(tmp_path: Path) -> None:
    library = _load(tmp_path, "int add(int a, int b) { return a + b; }\n")
    assert library.add(2, 3) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["kernel.so"]


def test_detection_is_quick_and_remembered() -> None:
    module._find.cache_clear()
    start = time.perf_counter()
    found = find_toolchain()
    first = time.perf_counter() - start
    assert find_toolchain() is found
    assert first < 0.5  # 7 ms on an idle machine; this only catches a compile sneaking in


def test_nan_and_infinity_survive_the_flags(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    assert not any("fast-math" in flag or "finite-math" in flag for flag in toolchain.flags)
    library = _load(
        tmp_path, "int is_nan(float x) { return x != x; }\nfloat twice(float x) { return x + x; }\n"
    )
    library.is_nan.argtypes = library.twice.argtypes = [ctypes.c_float]
    library.twice.restype = ctypes.c_float
    assert library.is_nan(math.nan) == 1
    assert library.twice(math.inf) == math.inf


@pytest.mark.skipif(not GLIBC_X86, reason="libmvec is glibc's, and these names are x86-64's")
def test_vector_math_links_and_agrees(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    if toolchain.kind != "gcc":
        pytest.skip("only gcc honours the simd attribute")
    names = sorted(name for name in toolchain.vector_math if name in ("expf", "tanhf", "erff", "log1p"))
    assert {"expf"} <= set(names)
    source = "".join(
        f'__attribute__((simd("notinbranch"), const)) {t} {name}({t});\n'
        f"void map_{name}({t} *restrict out, const {t} *restrict in, long n)\n"
        f"{{ for (long i = 0; i < n; i++) out[i] = {name}(in[i]); }}\n"
        for name in names
        for t in ["float" if name.endswith("f") else "double"]
    )
    library = _load(tmp_path, source)
    for name in names:
        dtype = torch.float32 if name.endswith("f") else torch.float64
        x = torch.tensor([0.0, -0.5, 0.5, 3.0, math.inf, math.nan, -0.25] * 9, dtype=dtype)
        out = torch.empty_like(x)
        getattr(library, "map_" + name)(
            ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(x.data_ptr()), ctypes.c_long(x.numel())
        )
        torch.testing.assert_close(out, getattr(torch, name.removesuffix("f"))(x), equal_nan=True)
    text = subprocess.run(["nm", "-D", str(tmp_path / "kernel.so")], capture_output=True, text=True)
    if text.returncode == 0:
        assert "_ZGV" in text.stdout and "v_expf" in text.stdout


@pytest.mark.skipif(not GLIBC_X86, reason="libmvec is glibc's, and these names are x86-64's")
@pytest.mark.parametrize(("suffix", "kind"), [("f", "float"), ("", "double")])
def test_a_sine_beside_its_cosine_is_still_vectorised(tmp_path: Path, suffix: str, kind: str) -> None:
    toolchain = find_toolchain()
    if toolchain.kind != "gcc" or not {f"sin{suffix}", f"cos{suffix}"} <= toolchain.vector_math:
        pytest.skip("only gcc honours the simd attribute")
    source = "".join(
        f'__attribute__((simd("notinbranch"), const)) {kind} {name}{suffix}({kind});\n'
        for name in ("sin", "cos")
    ) + (
        f"void both({kind} *restrict out, const {kind} *restrict in, long n)\n"
        f"{{ for (long i = 0; i < n; i++) out[i] = sin{suffix}(in[i]) * cos{suffix}(in[i]); }}\n"
    )
    _load(tmp_path, source)
    text = subprocess.run(["nm", "-D", str(tmp_path / "kernel.so")], capture_output=True, text=True)
    assert "sincos" not in text.stdout and f"v_sin{suffix}" in text.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="which OpenMP runtime is loaded is read from /proc")
def test_kernels_obey_torch_threads(tmp_path: Path) -> None:
    """One OpenMP runtime in the process, torch's, so ``torch.set_num_threads`` reaches our kernels."""
    if not find_toolchain().openmp:
        pytest.skip("this compiler has no OpenMP")
    source = (
        "int omp_get_num_threads(void);\n"
        "int threads(void) {\n"
        "  int n = 0;\n"
        "  #pragma omp parallel\n"
        "  {\n    #pragma omp master\n    n = omp_get_num_threads();\n  }\n"
        "  return n;\n}\n"
    )
    library = _load(tmp_path, source)
    before = torch.get_num_threads()
    try:
        for count in (1, 3, 2):
            torch.set_num_threads(count)
            assert library.threads() == count
    finally:
        torch.set_num_threads(before)
    maps = Path("/proc/self/maps").read_text()
    runtimes = {line.split()[-1] for line in maps.splitlines() if "libgomp" in line or "libomp" in line}
    assert len(runtimes) == 1, runtimes


def test_a_refused_file_raises_with_the_first_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        find_toolchain().compile("int f(int x) { return x + ; }\n", tmp_path / "kernel.so")
    assert "error: expected expression" in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_an_older_library_is_replaced_whole(tmp_path: Path) -> None:
    out = tmp_path / "kernel.so"
    toolchain = find_toolchain()
    toolchain.compile("int f(void) { return 1; }\n", out)
    first = ctypes.CDLL(str(out))
    toolchain.compile("int f(void) { return 2; }\n", out)
    assert first.f() == 1  # still mapped: the file was replaced, not overwritten


def test_a_folder_that_has_gone(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="cannot write"):
        find_toolchain().compile("int f(void) { return 1; }\n", tmp_path / "gone" / "kernel.so")


def test_no_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NBCOMPILE_CC", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError) as caught:
        find_toolchain()
    assert "apt install gcc" in str(caught.value) and "\n" not in str(caught.value)
    _program(tmp_path, "gcc", "echo 'gcc 99, Free Software Foundation'\n")
    assert find_toolchain().command == (str(tmp_path / "gcc"),)  # a failure is not remembered


def test_a_named_compiler_that_does_not_run(no_compiler: None) -> None:
    with pytest.raises(ToolchainError, match="NBCOMPILE_CC=/nowhere/cc"):
        find_toolchain()


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NBCOMPILE_CC", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    script = "case \"$*\" in *--version*) echo 'clang version 99';; *) exit 1;; esac\n"
    clang = _program(tmp_path, "clang", script)
    monkeypatch.setenv("CC", "clang --target=x")
    found = find_toolchain()
    assert found.command == (str(clang), "--target=x") and found.kind == "clang"
    assert not found.openmp and "-fopenmp" not in found.flags  # its trial of OpenMP fails: kernels go serial
    monkeypatch.setenv("CC", "no-such-compiler")
    assert find_toolchain().command[0].endswith("gcc")
    monkeypatch.setenv("CC", "'open quote")
    assert find_toolchain().command[0].endswith("gcc")


@pytest.mark.parametrize(
    ("version", "without"),
    [
        ("gcc (Debian 12.2.0-14) 12.2.0", False),
        ("gcc-real (Ubuntu 13.3.0-6) 13.3.0", True),
        ("gcc (GCC) 13.2.1 20230801 (Red Hat 13.2.1-1)", True),
        ("gcc (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)", False),
        ("gcc of nobody knows when", True),
    ],
)
def test_a_pass_of_newer_gcc_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, without: bool
) -> None:
    script = (
        f"case \"$*\" in *--version*) echo '{version}'; echo 'Free Software Foundation';; *) exit 1;; esac\n"
    )
    monkeypatch.setenv("NBCOMPILE_CC", str(_program(tmp_path, "gcc", script)))
    assert ("-fno-tree-dominator-opts" in find_toolchain().flags) == without


def test_a_compiler_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = "*--version*) echo 'Free Software Foundation';;"
    hanging = f'case "$*" in {version} *print-file*|*-E*) echo x;; *) exec sleep 60;; esac\n'
    monkeypatch.setenv("NBCOMPILE_CC", str(_program(tmp_path, "cc", hanging)))
    toolchain = find_toolchain()
    start = time.perf_counter()
    with pytest.raises(ToolchainError, match="took longer"):
        toolchain.compile("int f(void) { return 1; }\n", tmp_path / "kernel.so", timeout=0.3)
    assert time.perf_counter() - start < 10
    assert [path.name for path in tmp_path.iterdir()] == ["cc"]


_ASKED = (
    "case \"$*\" in *--version*) echo 'Free Software Foundation'; exit;; "
    "*print-file*|*-E*) echo x; exit;; esac\n"
)


def test_a_compiler_that_is_killed_is_asked_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    once = f'[ -e {mark} ] || {{ touch {mark}; kill -KILL $$; }}\nexec gcc "$@"\n'
    monkeypatch.setenv("NBCOMPILE_CC", str(_program(tmp_path, "cc", _ASKED + once)))
    text = "int f(void) { return 1; }\n"
    find_toolchain().compile(text, tmp_path / "kernel.so")
    assert mark.exists() and (tmp_path / "kernel.so").exists()
    monkeypatch.setenv("NBCOMPILE_CC", str(_program(tmp_path, "cc2", _ASKED + "kill -SEGV $$\n")))
    with pytest.raises(ToolchainError, match=r"ended by a signal \(SIGSEGV\), twice") as caught:
        find_toolchain().compile(text, tmp_path / "kernel.so")
    assert not caught.value.output


def test_what_is_no_error_in_the_text_refuses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its kernels would be taken apart, in the cache as well, for a compiler that is broken."""
    broken = "printf '\\377\\376 broken' >&2; exit 1\n"
    monkeypatch.setenv("NBCOMPILE_CC", str(_program(tmp_path, "cc", _ASKED + broken)))
    with pytest.raises(ToolchainError, match="broken") as caught:
        find_toolchain().compile("int f(void) { return 1; }\n", tmp_path / "kernel.so")
    assert not caught.value.output


@pytest.mark.skipif(os.name != "posix", reason="no groups of processes here")
def test_what_a_compiler_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = f"sleep 61 & echo $! > {tmp_path}/pid; wait\n"
    monkeypatch.setenv("NBCOMPILE_CC", str(_program(tmp_path, "cc", _ASKED + started)))
    with pytest.raises(ToolchainError, match="took longer"):
        find_toolchain().compile("int f(void) { return 1; }\n", tmp_path / "kernel.so", timeout=1.0)
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("messages", "line"),
    [
        ("<stdin>: In function 'f':\n<stdin>:1:2: error: no.\n", "<stdin>:1:2: error: no"),
        ("ld: cannot find -lm\ncollect2: error: ld returned 1 exit status\n", "ld: cannot find -lm"),
        ("", "failed without a message"),
        ("odd", "odd"),
    ],
)
def test_first_error(messages: str, line: str) -> None:
    assert first_error(messages) == line


def test_fingerprint_follows_the_flags_and_the_processor() -> None:
    import dataclasses

    here = find_toolchain()
    others = [
        dataclasses.replace(here, flags=(*here.flags, "-O1")),
        dataclasses.replace(here, processor="x86_64-other"),
        dataclasses.replace(here, version="gcc 99"),
    ]
    assert len({here.fingerprint, *(other.fingerprint for other in others)}) == 4
