"""When two ranks say the same: a text without what differs from process to process."""

from __future__ import annotations

import hashlib
import re

COMPARED = {
    "dynamo_output_graph": "graph",
    "compiled_autograd_graph": "graph",
    "optimize_ddp_split_graph": "graph",
    "optimize_ddp_split_child": "graph",
    "dynamo_cpp_guards_str": "guards",
    "dynamo_guards": "guards",
    "aot_joint_graph": "ATen graph",
    "aot_forward_graph": "ATen graph",
    "aot_backward_graph": "ATen graph",
    "aot_inference_graph": "ATen graph",
    "inductor_post_grad_graph": "post-grad graph",
    "inductor_output_code": "generated code",
}
"""Artifacts that ranks are compared by, and what each is to a reader."""

_GUARD_IDS = re.compile(r"(___check_\w{1,20}_id\(.{1,300}?, )\d+(?=[,)])")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_LONG_NUMBER = re.compile(r"(?<![\w.])\d{12,}(?![\w.])")  # an object's id stands in other guards, too
_NUMBERED = re.compile(r"\b(cuda|xpu|mtia|hpu):\d+\b")
_DEVICE_CALLS = re.compile(r"(_DeviceGuard|set_device|get_raw_stream|get_cuda_stream)\(\d+\)")
_STREAM = re.compile(r"\bstream\d+\b")
_INDEX = re.compile(r"(DeviceProperties\([^()]*?\bindex=)\d+")
_LATENCY = re.compile(r"^Guard latency = .*$", re.MULTILINE)
_OWN_NAMES = re.compile(r"(?m)^# AOT ID: .*$|/[^\s'\"]*/c[a-z2-7]{51}\.\w+")


def same_everywhere(name: str, text: str) -> str:
    """``text`` without addresses, ids of objects, numbers of devices and streams, and latencies: what is left
    is equal on ranks that compiled the same. ``name`` is the artifact's."""
    text = _device(text)
    if COMPARED.get(name) == "guards":
        text = _LATENCY.sub("", _LONG_NUMBER.sub("…", _GUARD_IDS.sub(r"\1…", text)))
    elif name == "inductor_output_code":
        text = _OWN_NAMES.sub("…", _INDEX.sub(r"\1…", _STREAM.sub("stream", text)))
    return _ADDRESS.sub("0x…", text)


def _device(text: str) -> str:
    return _DEVICE_CALLS.sub(r"\1(…)", _NUMBERED.sub(r"\1:…", text))


def digest(name: str, payload: bytes) -> str:
    """The hash that ranks are compared by; of a payload that is no text, of its bytes."""
    text = same_everywhere(name, payload.decode("utf-8", "replace"))
    return hashlib.sha1(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
