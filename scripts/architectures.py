"""Every architecture of the ``transformers`` package, small and with random weights, through this compiler.

    python scripts/architectures.py [--half 0] [--seconds 3600] [--out rows.jsonl] [--only bert t5] [--both]

For each model type of the package, a class with a head and a loss where there is one that runs (else the
base model; with ``--both`` each): its config made small by the names of its fields, weights drawn at random,
inputs made from the names of forward's arguments. Forward and backward run in eager twice, in eager with
float64, and compiled; results and all gradients are compared as ``%%compile --check`` does. Each runs in a
process of its own, so that a crash or a hang is one row. A row ends as one of:

    agrees    an error against float64 at most about twice eager's
    WRONG     results or gradients that are not, while those of aot_eager are
    raises    the compiled model raises, while aot_eager's does not; or a crash, or a hang
    torch     as one of these two, but so is aot_eager; or a hang in which our compiler has no part
    skipped   it cannot be built small by these rules, eager refuses the inputs, or is not deterministic

Needs ``transformers`` importable (no weights, no network). ``--half`` takes one half of the model types, by
a hash of their names, so that the other stays unseen; ``--seconds`` stops in time, and what is left is said.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import faulthandler
import hashlib
import inspect
import json
import logging
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
BATCH, LENGTH, VOCABULARY, IMAGE = 2, 12, 100, 64
WIDTH, HEADS = 64, 4
NEAR = 1e-5
MAX_PARAMETERS = 40_000_000
LOOPS = ("pointwise", "reduction", "scan", "scatter")
HEADS_WITH_LOSS = (
    "MASKED_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "CTC",
    "SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "MASKED_IMAGE_MODELING", "QUESTION_ANSWERING",
    "TOKEN_CLASSIFICATION", "TIME_SERIES_PREDICTION", "MULTIMODAL_LM", "PRETRAINING", "OBJECT_DETECTION",
    "UNIVERSAL_SEGMENTATION", "ZERO_SHOT_IMAGE_CLASSIFICATION", "TEXT_TO_WAVEFORM",
)  # fmt: skip


@dataclass
class Row:
    """What became of one class. ``loops``, ``library`` and ``fallbacks`` are about graphs that our compiler
    took; ``unlowered`` counts the computing nodes of those it left to eager, ``eager`` says why."""

    name: str
    model: str = ""
    status: str = "skipped"
    reason: str = ""
    graphs: int = 0
    eager: dict[str, str] = field(default_factory=dict)
    breaks: list[str] = field(default_factory=list)
    loops: int = 0
    library: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    unlowered: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    parameters: int = 0
    aot_eager: str = ""
    worst: list[str] = field(default_factory=list)

    def line(self) -> str:
        text = f"{self.status:8}{self.model or self.name}: {self.graphs} graphs"
        text += f", {len(self.breaks)} breaks, {self.loops} loops, {sum(self.library.values())} library"
        text += f", {sum(self.fallbacks.values())} fallback"
        if self.fallbacks:
            text += f" ({', '.join(f'{op} ×{n}' for op, n in sorted(self.fallbacks.items()))})"
        text += f", {self.compile_seconds:.1f} s of {self.seconds:.0f}"
        if self.eager:
            text += f"; in eager: {'; '.join(f'{graph}: {why}' for graph, why in self.eager.items())}"
        if self.reason:
            text += f"; {self.reason}"
        return text + (f"; aot_eager {self.aot_eager}" if self.aot_eager else "")


# -- which ---------------------------------------------------------------------------------------


def digest(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


def classes() -> dict[str, list[str]]:
    """Names of the classes to try for each model type, those with a loss first, the base model last."""
    from transformers.models.auto import modeling_auto

    heads = [f"MODEL_FOR_{head}_MAPPING_NAMES" for head in HEADS_WITH_LOSS]
    tables = [getattr(modeling_auto, name, {}) for name in heads]
    found: dict[str, list[str]] = {}
    for table in [*tables, modeling_auto.MODEL_MAPPING_NAMES]:
        for kind, names in table.items():
            names = names if isinstance(names, str) else names[0]
            if names not in found.setdefault(kind, []):
                found[kind].append(names)
    return found


# -- a small config ------------------------------------------------------------------------------

# Field names, and what a whole number there becomes at most; the first that matches decides.
SMALL: tuple[tuple[str, int], ...] = (
    (r".*vocab.*", VOCABULARY),
    (r"(num|n)_(hidden_)?layers?|(?!num_kv_shared).*_layers|depth|.*num_blocks|num_block.*", 2),
    (r".*(experts?_per_tok(en)?|top_?k(_experts)?|moe_k)", 2),
    (r"(n|topk)_groups?|topk_group", 1),
    (r"(num|n)_shared_experts", 1),
    (r"(moe_)?(num|n)_.*experts|num_experts", 4),
    (r".*(intermediate_size|ffn_dim|d_ff|n_inner|ff_dim|dim_feedforward|ffn_hidden_size|mlp_dim)(_.*)?", 96),
    (r"mamba_d_head|.*head_dim|d_kv|attention_head_size|head_size", WIDTH // HEADS),
    (r"rotary_dim|rotary_embedding_dim", WIDTH // HEADS),
    (r"num_kv_shared_layers", 0),
    (r"(kv|q)_lora_rank", 24),
    (r".*max_(position|source|target|seq).*|n_positions|n_ctx|block_size|max_length", 256),
    (r".*(image|img|input)_size", IMAGE),
    (r"num_conv_pos_embedding_groups", 8),
    (r".*(state_size|d_state)", 8),
    (r"(num_)?(object_)?quer(y|ies)(_tokens)?|num_query_tokens|num_latents", 6),
    (r"(\w*_)?(hidden_size|d_model|hidden_dim|n_embd|embed_dim|embedding_size|projection_dim|d_latents)(_.*)?"
     r"|dim|width|out_hidden_size|.*_hidden|.*_width|.*_dim|.*_embd|rnn_hidden.*|lru_width", WIDTH),
)  # fmt: skip
NOT_SMALL = re.compile(
    r"num_feat_extract_layers|num_channels|in_channels|.*(rope|conv|kernel|mel).*dim|expand.*|.*ratio|.*scale"
)
KEY_VALUE = re.compile(r".*(key_value|kv)_heads|num_kv.*|.*kv_groups|multi_query_group_num|n_kv_head")
HEAD_COUNT = re.compile(r"(.*_)?(num_)?(attention_)?heads|.*n_heads?|n_head|.*num_heads?")
TOKEN = re.compile(r".*(_token_id|_token_index|_token_ids|_idx|_id)")
DEPTHS = re.compile(r"depths?|num_blocks|layers|num_layers|encoder_depths|depths_.*")


class Shrinker:
    """Makes a config's dictionary small. ``narrow``: the widths too, not only layers and vocabulary."""

    def __init__(self, narrow: bool) -> None:
        self.narrow = narrow
        self._next_token = VOCABULARY - 1

    def shrink(self, config: dict[str, Any]) -> dict[str, Any]:
        layers = next(
            (
                config[key]
                for key in ("num_hidden_layers", "num_layers", "n_layer")
                if isinstance(config.get(key), int)
            ),
            0,
        )
        kinds = config.get("layer_types")
        keep = self._kept(kinds) if isinstance(kinds, list | tuple) and len(kinds) == layers else None
        heads = max(
            (v for k, v in config.items() if isinstance(v, int) and HEAD_COUNT.fullmatch(k)), default=0
        )
        made: dict[str, Any] = {}
        for key, value in config.items():
            if isinstance(value, list | tuple) and layers > 2 and len(value) == layers:
                made[key] = [value[i] for i in keep] if keep else list(value[:2])
            elif keep and key in ("num_hidden_layers", "num_layers", "n_layer"):
                made[key] = len(keep)
            else:
                made[key] = self._value(key, value, heads)
        return made

    def _kept(self, kinds: list[str] | tuple[str, ...]) -> list[int]:
        """Places of the first layer of each kind, at least two layers."""
        first = sorted({kind: i for i, kind in reversed(list(enumerate(kinds)))}.values())
        return first if len(first) > 1 else [0, 1][: len(kinds)]

    def _value(self, key: str, value: Any, heads: int) -> Any:
        if isinstance(value, dict):
            return self.shrink(value) if all(isinstance(name, str) for name in value) else value
        if value is None and key == "head_dim" and self.narrow:
            return WIDTH // HEADS  # some models want it said
        if isinstance(value, bool) or value is None:
            return value
        if TOKEN.fullmatch(key):
            return self._token(value)
        if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
            return self._numbers(key, list(value))
        if isinstance(value, list | tuple) and self.narrow and key in ("short_factor", "long_factor"):
            return list(value[: WIDTH // HEADS // 2])
        return self._number(key, value, heads) if type(value) is int else value

    def _token(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._token(item) for item in value]
        if type(value) is not int or value < VOCABULARY:
            return value
        self._next_token -= 1
        return self._next_token

    def _numbers(self, key: str, value: list[int]) -> list[int]:
        if DEPTHS.fullmatch(key):
            return [1] * len(value)
        if not self.narrow:
            return value
        if key == "mrope_section":
            return [WIDTH // HEADS // 4, WIDTH // HEADS // 8, WIDTH // HEADS // 8]
        if key in ("conv_dim", "tdnn_dim"):
            return [32] * len(value)
        if re.fullmatch(r".*(image|img|input)_size", key):
            return [min(IMAGE, item) for item in value]
        return value

    def _number(self, key: str, value: int, heads: int) -> int:
        if KEY_VALUE.fullmatch(key):
            return value if not self.narrow else 1 if value == 1 else HEADS if value == heads else 2
        if self.narrow and HEAD_COUNT.fullmatch(key):
            return min(value, HEADS)
        for place, (pattern, most) in enumerate(SMALL):
            if re.fullmatch(pattern, key) and not NOT_SMALL.fullmatch(key):
                return min(value, most) if self.narrow or place < 2 else value
        return value


# What follows from the rest of a config.
DROPPED = (
    "transformers_version", "architectures", "_name_or_path", "out_features", "out_indices", "stage_names",
    "per_layer_config", "qk_head_dim",
)  # fmt: skip
OVERRIDES: dict[str, dict[str, Any]] = {
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "big_bird": {"attention_type": "original_full"},
    "reformer": {"axial_pos_shape": [4, 8], "axial_pos_embds_dim": [32, 32], "is_decoder": True},
    "led": {"attention_window": [4, 4]},
    "longformer": {"attention_window": [4, 4]},
    "funnel": {"block_sizes": [1, 1]},
}


def small_configs(kind: str) -> Iterator[Any]:
    """Configs to try, smallest first."""
    from transformers import CONFIG_MAPPING

    try:
        cls = CONFIG_MAPPING[kind]
        whole = cls().to_dict()
    except Exception as error:
        yield error
        return
    for narrow in (True, False):
        made = Shrinker(narrow).shrink(copy.deepcopy(whole)) | (OVERRIDES.get(kind, {}) if narrow else {})
        made.pop("model_type", None)
        for part in dictionaries(made):
            for name in DROPPED:
                part.pop(name, None)
        try:
            config = cls(**made)
        except Exception as error:
            yield error
            continue
        for each in parts_of(config):
            for name, value in (("use_cache", False), ("return_dict", True)):
                if hasattr(each, name):
                    setattr(each, name, value)
            rotary = getattr(each, "rope_parameters", None)
            if narrow and isinstance(rotary, dict) and re.search(r"vl|omni|glm|ocr|qwen|ernie", kind):
                quarter = each.head_dim // 4 if getattr(each, "head_dim", None) else WIDTH // HEADS // 4
                rotary.setdefault("mrope_section", [quarter, quarter // 2, quarter // 2])
        yield config


def dictionaries(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A config's dictionary and those of the configs within it."""
    yield config
    for value in config.values():
        if isinstance(value, dict) and "model_type" in value:
            yield from dictionaries(value)


def parts_of(config: Any) -> Iterator[Any]:
    """A config and those within it."""
    from transformers import PreTrainedConfig

    yield config
    for value in list(vars(config).values()):
        if isinstance(value, PreTrainedConfig):
            yield from parts_of(value)


# -- a model and its inputs ----------------------------------------------------------------------


class Fields:
    """Values of a config's fields, wherever in it they are."""

    def __init__(self, config: Any) -> None:
        self.parts = list(parts_of(config))

    def get(self, default: Any, *names: str) -> Any:
        for name in names:
            for part in self.parts:
                value = getattr(part, name, None)
                if value is not None and value != []:
                    return value
        return default

    def number(self, default: int, *names: str) -> int:
        value = self.get(default, *names)
        return int(value[0] if isinstance(value, list | tuple) else value)


def build(cls: Any, config: Any) -> Any:
    """The model, in eval mode. ValueError where it is too large."""
    import torch

    try:
        with torch.device("meta"):
            shape = cls(copy.deepcopy(config))
        count = sum(p.numel() for p in shape.parameters())
    except Exception:  # some compute with numbers when they are made
        count = 0
    if count > MAX_PARAMETERS:
        raise ValueError(f"{count / 1e6:.0f} million parameters")
    torch.manual_seed(SEED)
    model = cls(config).eval().float()
    with torch.no_grad():  # what begins as zeros would hide what is behind it
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn(parameter.shape) * 0.02)
    return model


def inputs_for(model: Any, config: Any, leave_out: frozenset[str], images: int = 0) -> dict[str, Any]:
    """Arguments for forward. ``images``: how many of a row's ids stand for an image."""
    import torch

    torch.manual_seed(SEED + 1)
    fields = Fields(config)
    given = inspect.signature(model.forward).parameters
    made: dict[str, Any] = {}
    for name, parameter in given.items():
        needed = parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if name in leave_out and not needed:
            continue
        maker = MAKERS.get(name) or (NEEDED.get(name) if needed else None)
        value = maker(fields, type(model).__name__, LENGTH + images) if maker else None
        if value is None and needed and name not in ("self",):
            raise ValueError(f"nothing is known to give for {name}")
        if value is not None:
            made[name] = value
    if images and "input_ids" in made:
        token = fields.number(0, "image_token_id", "image_token_index", "audio_token_id", "audio_token_index")
        made["input_ids"][:, 2 : 2 + images] = token
    return made


Maker = Callable[[Fields, str, int], Any]


def _ids(fields: Fields, model: str, length: int) -> Any:
    import torch

    high = min(80, fields.number(80, "vocab_size") - 1)
    return torch.randint(min(5, high - 1), high, (BATCH, length))


def _mask(fields: Fields, model: str, length: int) -> Any:
    import torch

    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[1, -2:] = 0
    return mask


def _pixels(fields: Fields, model: str, length: int) -> Any:
    import torch

    size = fields.get(IMAGE, "image_size", "img_size", "input_size")
    size = size if isinstance(size, list | tuple) else (size, size)
    channels = fields.number(3, "num_channels", "in_channels", "in_chans")
    channels = channels if channels <= 4 else 3
    frames = fields.get(0, "num_frames", "frames_per_clip")
    if frames and any(name in model for name in ("VideoMAE", "Timesformer", "Vivit", "VJEPA", "ForVideo")):
        return torch.randn(BATCH, int(frames), channels, *size[:2])
    return torch.randn(BATCH, channels, *[int(item) for item in size[:2]])


def _waves(fields: Fields, model: str, length: int) -> Any:
    import torch

    if "ASTF" in model or "ASTM" in model:
        return torch.randn(BATCH, fields.number(128, "max_length"), fields.number(128, "num_mel_bins"))
    if any(name in model for name in ("Encodec", "Dac", "Mimi", "XCodec", "Xcodec")):
        return torch.randn(BATCH, 1, 2048)
    return torch.randn(BATCH, 2400)


def _features(fields: Fields, model: str, length: int) -> Any:
    import torch

    bins = fields.number(80, "num_mel_bins", "input_feat_per_channel", "feature_size")
    frames = 2 * fields.number(32, "max_source_positions")
    if any(name in model for name in ("Whisper", "Audio", "Voxtral", "Omni")):
        return torch.randn(BATCH, bins, frames)
    return torch.randn(BATCH, 64, fields.number(bins, "feature_projection_input_dim"))


def _labels(fields: Fields, model: str, length: int) -> Any:
    import torch

    if re.search(r"For(Sequence|Image|Audio|Video)Classification|ForImage", model):
        return torch.tensor([0, 1])
    if model.endswith("ForCTC"):
        return torch.randint(5, 30, (BATCH, 4))
    if "Segmentation" in model:
        pixels = _pixels(fields, model, length)
        return torch.randint(0, 2, (BATCH, *pixels.shape[-2:]))
    if "TokenClassification" in model:
        return torch.randint(0, 2, (BATCH, length))
    if re.search(r"LM|Generation|Seq2Seq", model):
        return _ids(fields, model, length)
    return None


def _states(fields: Fields, length: int) -> Any:
    import torch

    return torch.randn(BATCH, length, fields.number(WIDTH, "hidden_size", "d_model"))


def _boxes(fields: Fields, model: str, length: int) -> Any:
    import torch

    corners = torch.randint(0, 50, (BATCH, length, 2))
    return torch.cat([corners, corners + torch.randint(1, 50, (BATCH, length, 2))], -1)


def _series(channels: bool, past: bool) -> Maker:
    def make(fields: Fields, model: str, length: int) -> Any:
        import torch

        if not past:
            return None
        steps = fields.number(24, "context_length")
        lags = fields.get([0], "lags_sequence")
        if "PatchT" not in model and isinstance(lags, list | tuple):
            steps += max(lags)
        many = fields.number(1, "num_input_channels", "input_size")
        return torch.randn(BATCH, steps, many) if many > 1 or "Patch" in model else torch.randn(BATCH, steps)

    return make


MAKERS: dict[str, Maker] = {
    "input_ids": _ids,
    "decoder_input_ids": lambda fields, model, length: _ids(fields, model, 7),
    "attention_mask": _mask,
    "pixel_values": _pixels,
    "input_values": _waves,
    "input_features": _features,
    "input_features_mask": lambda fields, model, length: _features(fields, model, length)[:, 0].ne(9).long(),
    "labels": _labels,
    "bbox": _boxes,
    "past_values": _series(False, True),
    "start_positions": lambda fields, model, length: _labels(fields, "ForImage", length),
    "end_positions": lambda fields, model, length: _labels(fields, "ForImage", length) + 3,
}
# Made only where forward cannot do without.
NEEDED: dict[str, Maker] = {
    "pixel_values_videos": lambda fields, model, length: _pixels(fields, "ForVideo", length),
    "inputs_embeds": lambda fields, model, length: _states(fields, length),
}
# What is left out, one after the other, until eager takes the rest.
LEFT_OUT: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"attention_mask"}),
    frozenset({"pixel_values", "input_features", "input_values"}),
    frozenset({"labels"}),
    frozenset({"labels", "attention_mask", "decoder_input_ids"}),
    frozenset({"labels", "attention_mask", "pixel_values", "input_features"}),
    frozenset({"labels", "attention_mask", "input_ids", "decoder_input_ids"}),
)


def tensors_of(output: Any) -> dict[str, Any]:
    """The tensors of a model's output, by name."""
    import torch
    from torch.utils import _pytree

    leaves = _pytree.tree_flatten_with_path(output)[0]
    return {_pytree.keystr(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


@dataclass
class Found:
    """A model that eager runs."""

    model: Any
    inputs: dict[str, Any]


def runs(model: Any, inputs: dict[str, Any]) -> None:
    """ValueError where eager gives no numbers, or other ones the second time."""
    import torch

    results = []
    for _ in range(2):
        torch.manual_seed(SEED)
        results.append(tensors_of(model(**inputs)))
    roots = [r for r in results[0].values() if r.requires_grad and r.is_floating_point()]
    if not roots:
        raise ValueError("no result has a gradient")
    torch.stack([r.float().square().mean() for r in roots if r.numel()]).sum().backward()
    model.zero_grad()
    if not all(torch.isfinite(r).any() for r in results[0].values() if r.is_floating_point() and r.numel()):
        raise ValueError("eager gives no finite number")
    for name, one in results[0].items():
        if not torch.equal(torch.nan_to_num(one), torch.nan_to_num(results[1][name])):
            raise ValueError("not deterministic")


def find(kind: str, name: str) -> Found:
    """A small model of this class that eager runs, and inputs; RuntimeError with the reasons where none."""
    import transformers

    cls = getattr(transformers, name, None)
    if cls is None:
        raise RuntimeError(f"transformers has no {name}")
    reasons: list[str] = []
    for config in small_configs(kind):
        if isinstance(config, Exception):
            reasons.append(f"config: {said(config)}")
            continue
        try:
            model = build(cls, copy.deepcopy(config))
        except Exception as error:
            reasons.append(f"build: {said(error)}")
            continue
        for leave_out in LEFT_OUT:
            found = taken(model, config, leave_out, reasons)
            if found is not None:
                return found
    raise RuntimeError(" | ".join(dict.fromkeys(reasons))[:600])


def taken(model: Any, config: Any, leave_out: frozenset[str], reasons: list[str]) -> Found | None:
    """With as many ids for an image as the model says that it wants."""
    images = 0
    for _ in range(2):
        try:
            inputs = inputs_for(model, config, leave_out, images)
            runs(model, inputs)
        except Exception as error:
            reasons.append(f"eager: {said(error)}")
            wanted = re.search(r"tokens:? \d+.*?features:? (?:torch.Size\(\[)?(\d+)", str(error), re.S)
            if wanted is None or images:
                return None
            images = int(wanted[1]) // BATCH
            if not 0 < images <= 200:
                return None
            continue
        return Found(model, inputs)
    return None


def said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:200]


# -- compiling and comparing ---------------------------------------------------------------------


def check(row: Row, found: Found) -> None:
    """Compile, compare, and fill the row."""
    import torch

    import nbcompile
    from nbcompile.bench.measure.accuracy import check as accuracy_of
    from nbcompile.bench.measure.state import Snapshot
    from nbcompile.bench.measure.timing import Step

    model, inputs = found.model, found.inputs
    row.parameters = sum(p.numel() for p in model.parameters())
    torch.manual_seed(SEED)
    snapshot = Snapshot({"model": model, "inputs": inputs})
    leaves = tuple(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)

    def program(called: Any) -> Callable[[], dict[str, Any]]:
        return lambda: tensors_of(called(**inputs))

    eager = Step(program(model), train=True, leaves=leaves)
    compiled = nbcompile.compile(model, backend="nbcompile", options={"cache": False, "verify": False})
    accuracy = accuracy_of(eager, {"compiled": eager.with_function(program(compiled))}, snapshot)
    record(row, compiled)
    bad = [item for item in accuracy if not item.agrees]
    if any(item.error is None and item.max_difference is not None for item in bad):  # there is no float64
        near = near_eager(eager, eager.with_function(program(compiled)), snapshot)
        bad = [item for item in bad if item.output not in near or item.error is not None]
        row.reason = "compared with float32 only"
    row.status = "agrees"
    if not bad:
        return
    row.worst = [f"{item.output}: {item.reason}" for item in bad[:12]]
    row.status = "raises" if any(item.output == "(run)" for item in bad) else "WRONG"
    row.reason = f"{len(bad)} of {len(accuracy)} differ; {row.worst[0]}"[:500]
    torch._dynamo.reset()
    theirs = eager.with_function(program(torch.compile(model, backend="aot_eager")))
    also = [item for item in accuracy_of(eager, {"aot_eager": theirs}, snapshot) if not item.agrees]
    row.aot_eager = f"{len(also)} differ; {also[0].output}: {also[0].reason}"[:300] if also else "agrees"
    outputs = {item.output for item in also}
    if all(item.output in outputs for item in bad):
        row.status = "torch"


def near_eager(eager: Any, step: Any, snapshot: Any) -> set[str]:
    """Results and gradients of a step that are eager's but for rounding, where no float64 says how large that
    is."""
    from nbcompile.bench.measure.accuracy import relative_error

    found = []
    for run in (eager, step):
        snapshot.restore()
        results = {f"output[{name!r}]": value.detach().clone() for name, value in run().items()}
        for name, tensor in snapshot.tensors.items():
            if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
                results[f"{name}.grad"] = tensor.grad.clone()
        found.append(results)
    snapshot.restore()
    return {
        name
        for name, one in found[0].items()
        if name in found[1] and relative_error(found[1][name].double(), one.double()) < NEAR
    }


def record(row: Row, compiled: Any) -> None:
    """The counts of a record."""
    recorder, compilation = compiled.recorder, compiled.compilation
    row.graphs = recorder.graph_count
    row.eager = dict(recorder.ran_eagerly)
    row.breaks = [item.reason[:160] for item in compilation.breaks]
    row.compile_seconds = recorder.compile_seconds
    library: collections.Counter[str] = collections.Counter()
    fallbacks: collections.Counter[str] = collections.Counter()
    for graph in compilation.of_stage("loops"):
        for node in graph.nodes:
            row.loops += node.kind in LOOPS
            library[node.op] += node.kind == "library"
            fallbacks[node.op] += node.kind == "fallback"
    lowered = {graph.parent for graph in compilation.of_stage("loops")}
    for graph in (*compilation.of_stage("forward"), *compilation.of_stage("backward")):
        if graph.id not in lowered:
            row.unlowered += sum(node.kind in ("compute", "fallback") for node in graph.nodes)
    row.library, row.fallbacks = dict(+library), dict(+fallbacks)


def work(kind: str, names: list[str], both: bool, answers: Any, errors: str) -> None:
    """In a process of its own: send the rows of a model type."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    faulthandler.enable()
    import torch

    torch.set_num_threads(1)
    reasons: list[str] = []
    for name in names:
        start = time.perf_counter()
        row = Row(kind, name)
        answers.send(("at", asdict(row)))
        try:
            found = find(kind, name)
        except RuntimeError as error:
            reasons.append(f"{name}: {error}")
            row.reason = str(error)
        else:
            answers.send(("compiling", asdict(row)))
            try:
                check(row, found)
            except Exception as error:
                row.status, row.reason = "raises", f"the check itself: {said(error)}"
        row.seconds = time.perf_counter() - start
        if row.status != "skipped" or both:
            answers.send(("done", asdict(row)))
            if not both or name == names[-1]:
                return
            torch._dynamo.reset()
    if not both:
        answers.send(("done", asdict(Row(kind, "", "skipped", " || ".join(reasons)[:900]))))


# -- the parent ----------------------------------------------------------------------------------


def rows_of(kind: str, names: list[str], both: bool, timeout: float) -> list[Row]:
    """Rows of one model type, tried in a process of its own."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    rows: list[Row] = []
    at, stage, hung = Row(kind), "", False
    start = time.monotonic()
    with tempfile.NamedTemporaryFile("r", prefix="nbcompile-architectures-", errors="replace") as errors:
        process = fork.Process(target=work, args=(kind, names, both, theirs, errors.name))
        process.start()
        theirs.close()
        while True:
            left = timeout - (time.monotonic() - start)
            if left <= 0 or not ours.poll(left):
                hung = True
                break
            try:
                stage, answer = ours.recv()
            except EOFError:
                break
            at = Row(**answer)
            if stage == "done":
                rows.append(at)
        if hung and process.pid is not None:
            os.kill(process.pid, signal.SIGABRT)  # it says where it is
            process.join(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.join()
        said_last = errors.read().partition("Current thread")[2]
    if stage != "done":
        frames = [line.strip() for line in said_last.splitlines() if line.startswith("  File")]
        why = f"no answer in {timeout:.0f} s" if hung else f"the process died ({process.exitcode})"
        ours_too = not hung or any("/nbcompile/compiler/" in frame for frame in frames)
        at.status = ("raises" if ours_too else "torch") if stage == "compiling" else "skipped"
        at.reason = " ".join([why if stage == "compiling" else f"eager: {why}", *frames[:4]])
        at.seconds = time.monotonic() - start
        rows.append(at)
    return rows


def summary(rows: list[Row], left: int) -> str:
    ran = [row for row in rows if row.status != "skipped"]
    counts = collections.Counter(row.status for row in rows)
    lines = [
        f"{counts['agrees']} of {len(ran)} agree; "
        + ", ".join(f"{count} {status}" for status, count in counts.most_common())
        + (f"; {left} model types not reached" if left else "")
    ]
    graphs = sum(row.graphs for row in ran)
    why = collections.Counter(reason[:200] for row in ran for reason in row.eager.values())
    lines.append(f"{graphs} graphs, {sum(row.eager != {} for row in ran)} rows with a part in eager")
    lines += [f"  {count} in eager: {reason}" for reason, count in why.most_common()]
    loops, unlowered = sum(row.loops for row in ran), sum(row.unlowered for row in ran)
    fallbacks: collections.Counter[str] = collections.Counter()
    library: collections.Counter[str] = collections.Counter()
    for row in ran:
        fallbacks.update(row.fallbacks)
        library.update(row.library)
    every = loops + unlowered + sum(fallbacks.values())
    if every:
        lines.append(
            f"native: {loops} of {every} computing nodes ({loops / every:.2%}), "
            f"{sum(fallbacks.values())} fallbacks, {unlowered} in graphs left to eager; "
            f"{sum(library.values())} library calls"
        )
    lines.append("fallbacks: " + ", ".join(f"{op} ×{count}" for op, count in fallbacks.most_common()))
    lines.append("library: " + ", ".join(f"{op} ×{count}" for op, count in library.most_common()))
    breaks = collections.Counter(reason for row in ran for reason in row.breaks)
    lines += [f"  {count} breaks: {reason}" for reason, count in breaks.most_common(20)]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these model types")
    parser.add_argument("--half", type=int, choices=(0, 1), help="half of the model types")
    parser.add_argument("--both", action="store_true", help="every class of a model type, not only the first")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the first")
    parser.add_argument("--seconds", type=float, help="start none after so many seconds")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a model type may take")
    parser.add_argument("--out", type=Path, help="also write every row to this file, as JSON lines")
    arguments = parser.parse_args(argv)
    for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE"):
        os.environ.setdefault(name, "1" if name != "TOKENIZERS_PARALLELISM" else "false")
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("ignore")
    import torch
    import transformers

    import nbcompile.compiler.compile_graph  # noqa: F401  (once, for all that are forked)

    logging.getLogger("torch").setLevel(logging.CRITICAL)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    every = classes()
    kinds = sorted(every, key=digest)
    if arguments.half is not None:
        kinds = [kind for kind in kinds if digest(kind) // 2 % 2 == arguments.half]
    if arguments.only:
        kinds = [kind for kind in arguments.only if kind in every]
    kinds = kinds[arguments.skip :]
    start, rows, reached = time.monotonic(), [], 0
    for kind in kinds:
        if arguments.seconds and time.monotonic() - start > arguments.seconds:
            break
        reached += 1
        for row in rows_of(kind, every[kind], arguments.both, arguments.timeout):
            rows.append(row)
            print(row.line(), flush=True)
            if arguments.out:
                with arguments.out.open("a") as out:
                    print(json.dumps(asdict(row)), file=out)
    print(summary(rows, len(kinds) - reached))
    return 1 if any(row.status in ("WRONG", "raises") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
