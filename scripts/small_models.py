"""Small models of ``transformers`` with random weights, and inputs that eager takes: by the names of the
arguments of forward."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from small_configs import BATCH, IMAGE, LENGTH, WIDTH, parts_of, small_configs

SEED = 0
MAX_PARAMETERS = 40_000_000


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


def runs(model: Any, inputs: dict[str, Any], times: int = 2) -> None:
    """ValueError where eager gives no numbers, or other ones the second time; or whatever else it raises."""
    import torch

    results = []
    for _ in range(times):
        torch.manual_seed(SEED)
        results.append(tensors_of(model(**inputs)))
        roots = [r for r in results[-1].values() if r.requires_grad and r.is_floating_point()]
        if not roots:
            raise ValueError("no result has a gradient")
        torch.stack([r.float().square().mean() for r in roots if r.numel()]).sum().backward()
        model.zero_grad()
    if not all(torch.isfinite(r).any() for r in results[0].values() if r.is_floating_point() and r.numel()):
        raise ValueError("eager gives no finite number")
    for name, one in results[0].items():
        if not torch.equal(torch.nan_to_num(one), torch.nan_to_num(results[-1][name])):
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
