"""Finding and patching addresses in captured graphs, and reading them through a driver of our own."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.cuda_graphs.driver import GraphDriver
from nbcompile.compiler.runtime.cuda_graphs.pointers import (
    LIBRARY_ALIGNMENT,
    OUR_ALIGNMENT,
    GraphNode,
    Memory,
    extent,
    places,
    write,
)
from nbcompile.errors import LaunchError

OURS = frozenset({"ours"})
X, MOVED = (0x7F0000000000, 0x7F0000001000), (0x7F8000000000, 0x7F8000001000)
POOL, OTHER_POOL = (0x7E0000000000, 0x7E0000002000), (0x7D0000000000, 0x7D0000002000)


def node(name: str, *buffers: bytes, opaque: str = "") -> GraphNode:
    made = [(ctypes.c_ubyte * len(item))(*item) for item in buffers]
    return GraphNode(0, "kernel", name, (name, *map(len, buffers)), made, opaque)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def found(first: list[GraphNode], second: list[GraphNode], moved: Any = None) -> Any:
    return places(first, second, moved or {0: (X, MOVED)}, (Memory([POOL]), Memory([OTHER_POOL])), OURS)


def test_an_address_inside_a_structure_is_found_and_patched() -> None:
    first = [node("ours", words(POOL[0])), node("library", words(3, X[0] + 64, POOL[0] + 8) + b"\1\2\3\4")]
    second = [
        node("ours", words(OTHER_POOL[0])),
        node("library", words(3, MOVED[0] + 64, OTHER_POOL[0] + 512) + b"\1\2\3\4"),
    ]
    where = found(first, second)[0]
    assert [(item.node, item.buffer, item.offset, item.from_start) for item in where.places] == [
        (1, 0, 8, 64)
    ]
    assert where.modulus == LIBRARY_ALIGNMENT
    assert write(first, where, 0x7F1000000000) == {1}
    assert bytes(first[1].buffers[0])[8:16] == words(0x7F1000000040)
    assert bytes(first[0].buffers[0]) == words(POOL[0])


def test_small_memory_of_torch_may_be_elsewhere_too() -> None:
    old, new = 0x7C0000000000, 0x7B0000000000
    memory = (Memory([POOL], [(old, old + 512)]), Memory([OTHER_POOL], [(new, new + 512)]))
    first = [node("library", words(old, X[0]))]
    second = [node("library", words(new, MOVED[0]))]
    assert len(places(first, second, {0: (X, MOVED)}, memory, OURS)[0].places) == 1


def test_small_memory_that_moved_like_an_input_is_an_address_beside_the_input() -> None:
    shift = MOVED[0] - X[0]
    first, second = [node("library", words(100))], [node("library", words(100 + shift))]
    small = (Memory([], [(0, 200)]), Memory([], [(shift, shift + 200)]))
    with pytest.raises(LaunchError, match="not known"):
        places(first, second, {0: (X, MOVED)}, small, OURS)
    own = (Memory(small[0].small), Memory(small[1].small))
    assert not places(first, second, {0: (X, MOVED)}, own, OURS)[0].places


def test_only_our_kernels_ask_for_no_more_than_16_bytes() -> None:
    where = found([node("ours", words(X[0]))], [node("ours", words(MOVED[0]))])[0]
    assert where.modulus == OUR_ALIGNMENT


def test_an_input_that_nothing_reads_may_be_anywhere() -> None:
    same = [node("ours", words(POOL[0]))]
    where = found(same, same)[0]
    assert where.places == () and where.modulus == 1


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        (words(X[0] >> 4), words(MOVED[0] >> 4), "not known"),  # packed
        (words(X[0] - 4096), words(MOVED[0] - 4096), "not known"),  # starts before the input
        (words(X[0] + 8), words(MOVED[0] + 16), "not known"),  # moved otherwise than the input
        (words(1) + b"\0\0\0\1", words(1) + b"\0\0\0\2", "another number"),
        (words(1), words(1) + b"\0", "other kernels"),
    ],
)
def test_a_difference_that_is_not_explained(old: bytes, new: bytes, word: str) -> None:
    with pytest.raises(LaunchError, match=word):
        found([node("library", old)], [node("library", new)])


def test_a_node_that_cannot_be_read() -> None:
    hidden = [node("library", opaque="hides its arguments")]
    with pytest.raises(LaunchError, match="library hides its arguments"):
        found(hidden, hidden)


def test_neighbours_and_inputs_that_share_memory() -> None:
    middle = X[0] + 0x800
    after = MOVED[0] + 0x800
    neighbours = {0: ((X[0], middle), (MOVED[0], after)), 1: ((middle, X[1]), (after, MOVED[1]))}
    first, second = [node("ours", words(middle))], [node("ours", words(after))]
    result = found(first, second, neighbours)
    assert not result[0].places and len(result[1].places) == 1
    shared = {0: (X, MOVED), 1: ((X[0], middle), (MOVED[0], after))}
    with pytest.raises(LaunchError, match="share"):
        found([node("ours", words(X[0]))], [node("ours", words(MOVED[0]))], shared)


def test_extents() -> None:
    assert extent(torch.empty(3, 4)) == 48
    assert extent(torch.empty(0, 4)) == 0
    assert extent(torch.empty(3, 4).t()) == 48
    assert extent(torch.empty(3, 4)[:, 1]) == 36
    assert extent(torch.empty(4).expand(5, 4)) == 16


FAKE = """
#include <string.h>
typedef unsigned long long u64;
struct kernel {
    void *function; unsigned grid[3], block[3], shared; void **parameters, **extra, *kernel, *context;
};
static u64 pointer = 0x7f0000000100, number = 5; static int small = 7;
static void *parameters[] = { &pointer, &small, &number };
static char copy[200], fill[40];
static void *current = (void *)77;
u64 fake_log[32]; int fake_status;
int cuCtxGetCurrent(void **c) { *c = current; return 0; }
int cuCtxPushCurrent_v2(void *c) { fake_log[20]++; current = c; return 0; }
int cuCtxPopCurrent_v2(void **c) { *c = current; current = 0; return 0; }
void fake_context(void *c) { current = c; }
int cuGraphGetNodes(void *g, void **n, u64 *count) {
    *count = 5;
    if (n) for (long k = 0; k < 5; k++) n[k] = (void *)(k + 1);
    return 0;
}
int cuGraphNodeGetType(void *n, int *t) {
    int types[] = { 0, 1, 2, 5, 3 };
    *t = types[(long)n - 1]; return 0;
}
int cuGraphKernelNodeGetParams_v2(void *n, struct kernel *k) {
    struct kernel made = { 0, {2, 3, 4}, {128, 1, 1}, 1024, parameters, 0, (void *)9, (void *)77 };
    *k = made; return 0;
}
int cuKernelGetName(const char **t, void *f) { *t = f == (void *)9 ? "ours" : "?"; return 0; }
int cuKernelGetParamInfo(void *f, u64 n, u64 *offset, u64 *size) {
    u64 sizes[] = { 8, 4, 8 };
    if (n >= 3) return 1;
    *size = sizes[n]; return 0;
}
int cuGraphMemcpyNodeGetParams(void *n, char *p) {
    copy[32] = 2; copy[120] = 2; memcpy(copy + 48, &pointer, 8); memcpy(p, copy, 200); return 0;
}
int cuGraphMemsetNodeGetParams(void *n, char *p) { memcpy(fill, &pointer, 8); memcpy(p, fill, 40); return 0; }
int cuGraphExecKernelNodeSetParams_v2(void *e, void *n, struct kernel *k) {
    fake_log[0] = (u64)e; fake_log[1] = (u64)n; fake_log[2] = *(u64 *)k->parameters[0];
    fake_log[3] = *(int *)k->parameters[1]; fake_log[4] = *(u64 *)k->parameters[2];
    fake_log[5] = k->grid[2]; fake_log[6] = k->shared; fake_log[7] = (u64)k->kernel;
    fake_log[8] = (u64)current;
    return fake_status;
}
int cuGraphExecMemcpyNodeSetParams(void *e, void *n, char *p, void *c) {
    memcpy(fake_log + 10, p + 48, 8); fake_log[11] = (u64)c; return fake_status;
}
int cuGraphExecMemsetNodeSetParams(void *e, void *n, char *p, void *c) {
    memcpy(fake_log + 12, p, 8); return fake_status;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("driver")
    find_toolchain().compile(FAKE, folder / "fake.so")
    return ctypes.CDLL(str(folder / "fake.so"))


def test_a_graph_is_read_and_updated_through_the_driver(library: Any) -> None:
    library.fake_context(ctypes.c_void_p(77))
    driver = GraphDriver(library)
    nodes = driver.nodes(1)
    assert [item.kind for item in nodes] == ["kernel", "copy", "fill", "other", "other"]
    assert [bool(item.opaque) for item in nodes] == [False, False, False, False, True]
    kernel, copy, fill = nodes[:3]
    assert kernel.name == "ours"
    assert [bytes(item) for item in kernel.buffers] == [
        words(0x7F0000000100), struct.pack("<i", 7), words(5),
    ]  # fmt: skip
    moved = [
        node(kernel.name, words(0x7F8000000100), struct.pack("<i", 7), words(5)),
        node(copy.name, bytes(copy.buffers[0])[:48] + words(0x7F8000000100) + bytes(copy.buffers[0])[56:]),
        node(fill.name, words(0x7F8000000100) + bytes(fill.buffers[0])[8:]),
    ]
    for one, other in zip(nodes, moved, strict=False):
        other.form = one.form
    where = found(nodes[:3], moved)[0]
    assert len(where.places) == 3
    changed = write(nodes, where, 0x7F2000000000)
    library.fake_context(None)  # a thread that has not used the GPU
    log = (ctypes.c_ulonglong * 32).in_dll(library, "fake_log")
    log[20] = 0
    driver.update(ctypes.c_void_p(55), [nodes[n] for n in sorted(changed)])
    assert list(log[0:9]) == [55, 1, 0x7F2000000100, 7, 5, 4, 1024, 9, 77]
    assert log[10] == 0x7F2000000100 and log[11] == 77
    assert log[12] == 0x7F2000000100
    assert log[20] == 1


def test_a_driver_that_refuses_or_is_too_old(library: Any) -> None:
    library.fake_context(ctypes.c_void_p(77))
    driver = GraphDriver(library)
    nodes = driver.nodes(1)
    status = ctypes.c_int.in_dll(library, "fake_status")
    status.value = 1
    try:
        with pytest.raises(LaunchError, match="cannot be changed"):
            driver.update(ctypes.c_void_p(55), nodes[:1])
    finally:
        status.value = 0

    class Old:
        cuCtxGetCurrent = library.cuCtxGetCurrent  # noqa: N815

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    with pytest.raises(LaunchError, match="too old"):
        GraphDriver(Old()).nodes(1)
