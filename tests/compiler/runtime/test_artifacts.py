"""torch.compiler.save_cache_artifacts() and load_cache_artifacts() carry our kernels to another process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.compiler import _cache

import nbcompile
from nbcompile.compiler.runtime import artifacts
from nbcompile.compiler.runtime import cache as disk
from nbcompile.compiler.runtime.cache import DiskCache, key

ROOT = Path(nbcompile.__file__).parent.parent
FILES = {"kernel.so": b"\x7fELF\n" + bytes(1000), "kernel.c": b"int x;\n"}

_PROGRAM = """
import json, sys
from pathlib import Path
import torch, nbcompile
from nbcompile.compiler.runtime.c import toolchain

built, run = [], toolchain._run
def watched(command, *, text="", **how):
    if text:  # a file is compiled; what has none asks the compiler for its version and its libraries
        built.append(command)
    return run(command, text=text, **how)
toolchain._run = watched

file = Path(sys.argv[2])
if file.exists():
    loaded = torch.compiler.load_cache_artifacts(file.read_bytes())
    print("loaded", len(loaded.artifacts["nbcompile"]))

BODY = "y = torch.softmax(x @ x, -1).sum() + (x.sin() * 2).sum(0).max()"
x = torch.linspace(-1, 1, 1024).reshape(32, 32).requires_grad_()
if sys.argv[1] == "plain":
    def f(x):
        return torch.softmax(x @ x, -1).sum() + (x.sin() * 2).sum(0).max()
    y = torch.compile(f, backend="nbcompile")(x)
    y.backward()
else:
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "nbcompile")
    shell.user_ns.update(x=x, torch=torch)
    shell.run_cell("%%compile --no-bench\\n" + BODY + "\\ny.backward()").raise_error()
    y = shell.user_ns["y"]
expected = torch.softmax(x @ x, -1).sum() + (x.sin() * 2).sum(0).max()
torch.testing.assert_close(y, expected)
if not file.exists():
    file.write_bytes(torch.compiler.save_cache_artifacts()[0])
print("built", len(built))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["plain", pytest.param("cell", marks=pytest.mark.nightly)])
def test_a_fresh_process_that_loads_them_compiles_nothing(tmp_path: Path, how: str) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    said = []
    for process in ("saves", "loads"):
        root = tmp_path / process
        done = subprocess.run(
            [sys.executable, tmp_path / "program.py", how, tmp_path / "saved"],
            capture_output=True, text=True, check=False,
            env={**os.environ, "NBCOMPILE_CACHE_DIR": str(root), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(dict(line.split() for line in done.stdout.splitlines() if line[:5] in ("built", "loade")))
    saves, loads = said
    assert int(saves["built"]) == 3, "forward and backward, and what calls kernels"
    # the code and the library of each, and what calls kernels; plainly compiled, both together as well: the
    # record of a cell tells every stage, so that its graphs are not looked up whole
    assert int(loads["loaded"]) == (6 if how == "plain" else 5)
    assert int(loads["built"]) == 0


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskCache]:
    """This process's cache, empty, and torch's list of artifacts, empty too."""
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path))
    assert artifacts.register() == ""
    with _cache.CacheArtifactManager.with_fresh_cache():
        yield DiskCache.shared()


def saved() -> tuple[bytes, Any]:
    found = torch.compiler.save_cache_artifacts()
    assert found is not None
    return found


def test_what_is_found_is_saved_as_what_is_stored(ours: DiskCache, tmp_path: Path) -> None:
    stored, found = key("stored"), key("found")
    DiskCache(tmp_path).put(found, FILES)  # another process's
    ours.put(stored, FILES)
    assert ours.get(found) is not None and ours.get(key("missing")) is None
    _, told = saved()
    assert sorted(told.artifacts[artifacts.TYPE]) == sorted([stored, found])


def test_no_bytes_are_kept_before_they_are_asked_for(ours: DiskCache) -> None:
    for _ in range(3):
        ours.put(key("graph"), FILES)
        ours.get(key("graph"))
    (kept,) = _cache.CacheArtifactManager._new_cache_artifacts[artifacts.TYPE]
    assert all(value in (b"", key("graph")) for value in vars(kept).values())
    assert kept.content == artifacts.pack(FILES)


def test_what_was_removed_meanwhile_is_said(ours: DiskCache, caplog: pytest.LogCaptureFixture) -> None:
    ours.put(key("kept"), FILES)
    ours.put(key("gone"), FILES)
    ours.remove(key("gone"))
    data, _ = saved()
    assert "was not saved: it has been removed" in caplog.text
    ours.clear()
    torch.compiler.load_cache_artifacts(data)
    assert ours.get(key("gone")) is None
    entry = ours.get(key("kept"))
    assert entry is not None and {name: entry.read(name) for name in entry.names} == FILES


def test_nothing_is_loaded_that_fails_its_checksum(ours: DiskCache, caplog: pytest.LogCaptureFixture) -> None:
    ours.put(key("good"), FILES)
    ours.put(key("bad"), {"kernel.so": b"right"})
    read = _cache.CacheArtifactManager.deserialize(saved()[0])  # torch has a sum of its own over all of it
    assert read is not None
    ours.clear()
    for each in read[artifacts.TYPE]:
        object.__setattr__(each, "loaded", each.content.replace(b"right", b"wrong"))
    _cache.CacheArtifactManager.populate_caches(read)
    assert ours.get(key("bad")) is None and ours.get(key("good")) is not None
    assert "kernel.so does not have the checksum it was saved with" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("../" * 5 + "x", artifacts.pack(FILES), "its key is none of ours"),
        (key(1), artifacts.pack({"../x": b"1"}), "not a plain file name"),
        (key(1), b"", "Expecting value"),
        (key(1), b"[]\n", "no entry of the cache"),
        (key(1), b"3\n", "no entry of the cache"),
        (key(1), artifacts.pack(FILES) + b"more", "no entry of the cache"),
        (key(1), artifacts.pack(FILES)[:-1], "checksum"),
    ],
)
def test_strange_artifacts(
    ours: DiskCache, caplog: pytest.LogCaptureFixture, name: str, content: bytes, said: str
) -> None:
    assert not artifacts.load(name, content)
    assert said in caplog.text and ours.size() == 0


def test_other_caches_are_not_saved(ours: DiskCache, tmp_path: Path) -> None:
    DiskCache(tmp_path / "other").put(key("graph"), FILES)
    assert not _cache.CacheArtifactManager.need_serialize()


def test_a_torch_without_artifacts_is_said_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    nbcompile.compile(lambda x: x + 1)(torch.ones(2))  # what torch itself imports of it is loaded
    monkeypatch.delattr(_cache, "CacheArtifactFactory")
    monkeypatch.setattr(disk, "WATCHERS", [])
    artifacts.register.cache_clear()
    try:
        compiled = nbcompile.compile(lambda x: x.sin() + 1)
        compiled(torch.ones(3))
        (note,) = compiled.compilation.notes
    finally:
        monkeypatch.undo()
        artifacts.register.cache_clear()
    assert note.startswith("torch.compiler.save_cache_artifacts() leaves out what nbcompile compiled")
    # the type is known to torch from before, and the watcher is there from before
    monkeypatch.setattr(_cache.CacheArtifactFactory, "_artifact_types", {})
    monkeypatch.setattr(disk, "WATCHERS", [])
    assert artifacts.register() == "" and len(disk.WATCHERS) == 1
    artifacts.register.cache_clear()


@pytest.mark.nightly
def test_importing_it_after_torch_is_enough() -> None:
    """Before any are loaded: else torch would refuse all artifacts, Inductor's too."""
    code = (
        "import torch, nbcompile\n"
        "from torch.compiler._cache import CacheArtifactFactory\n"
        "assert 'nbcompile' in CacheArtifactFactory._artifact_types"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
