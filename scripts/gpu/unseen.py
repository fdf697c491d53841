"""Whole models that nothing was tuned on: ``UNSEEN``, of transformers and torchvision.

In bf16 with random weights and, unless the name says otherwise, the sizes of the published models; those
whose compile time is a matter of how many layers there are have fewer. Each has the loss that users train it
with, or where its class has none the mean of the squares of its result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from zoo import Classifier, Model

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for small_configs.py

Inputs = Callable[[str, Any], dict[str, torch.Tensor]]


class Named(nn.Module):
    """A model of transformers called by the names of its arguments, the last of which is its labels, where
    ``labelled``. Nothing but one tensor comes out."""

    def __init__(self, body: nn.Module, names: tuple[str, ...], labelled: bool) -> None:
        super().__init__()
        self.body, self.names, self.labelled = body, names, labelled

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        names = self.names if self.labelled else self.names[:-1]
        found = self.body(**dict(zip(names, given, strict=False)))
        if len(given) < len(self.names):
            return found[0]  # type: ignore[no-any-return]
        return found.loss if self.labelled else found[0].float().square().mean()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Entry:
    """A class of transformers, what its config has otherwise than by default, and its inputs: the last of
    them are the labels. ``kind``: the name of its config's type."""

    kind: str
    cls: str
    inputs: Inputs
    config: Mapping[str, Any]
    labelled: bool = True

    def build(self, tiny: bool) -> Any:
        import transformers

        if tiny:
            from small_configs import small_configs

            config = next(each for each in small_configs(self.kind) if not isinstance(each, Exception))
        else:
            config = transformers.CONFIG_MAPPING[self.kind](**self.config)
        if hasattr(config, "use_cache"):
            config.use_cache = False
        module = Named(getattr(transformers, self.cls)(config), (), self.labelled)

        def inputs(device: str) -> tuple[torch.Tensor, ...]:
            made = self.inputs(device, Sizes(config, tiny))
            module.names = tuple(made)
            return tuple(made.values())

        return module, inputs


class Sizes:
    """The sizes of inputs: those asked for, or tiny ones."""

    def __init__(self, config: Any, tiny: bool) -> None:
        self.config, self.tiny = config, tiny

    def of(self, size: int, small: int) -> int:
        return small if self.tiny else size

    @property
    def side(self) -> int:
        size = getattr(self.config, "image_size", None) or 224
        size = size[0] if isinstance(size, tuple | list) else size
        return 64 if self.tiny and size > 64 else int(size)

    @property
    def words(self) -> int:
        return int(self.config.get_text_config().vocab_size)


def text(batch: int, length: int, *, both: bool = False) -> Inputs:
    """Ids and labels; with ``both`` the decoder's ids too, for a model that has one."""

    def inputs(device: str, sizes: Sizes) -> dict[str, torch.Tensor]:
        shape = (sizes.of(batch, 2), sizes.of(length, 12))
        names = ("input_ids", "decoder_input_ids", "labels") if both else ("input_ids", "labels")
        return {name: torch.randint(5, sizes.words, shape, device=device) for name in names}

    return inputs


def pictures(batch: int) -> Inputs:
    def inputs(device: str, sizes: Sizes) -> dict[str, torch.Tensor]:
        count = sizes.of(batch, 2)
        shape = (count, 3, sizes.side, sizes.side)
        return {
            "pixel_values": torch.randn(shape, device=device, dtype=torch.bfloat16),
            "labels": torch.randint(2, (count,), device=device),
        }

    return inputs


def sound(name: str, batch: int, shape: tuple[int, ...], small: tuple[int, ...]) -> Inputs:
    """Waves or spectra of the shape, and labels that are words (for speech to text) or classes."""

    def inputs(device: str, sizes: Sizes) -> dict[str, torch.Tensor]:
        count = sizes.of(batch, 2)
        waves = torch.randn(count, *(small if sizes.tiny else shape), device=device, dtype=torch.bfloat16)
        if name == "input_features":
            words = (torch.randint(5, sizes.words, (count, sizes.of(128, 8)), device=device) for _ in "ab")
            return {name: waves, **dict(zip(("decoder_input_ids", "labels"), words, strict=True))}
        return {name: waves, "labels": torch.randint(2, (count,), device=device)}

    return inputs


def hugging(kind: str, cls: str, inputs: Inputs, labelled: bool = True, **config: Any) -> Any:
    return Entry(kind, cls, inputs, config, labelled).build


def vision(name: str, batch: int, side: int = 224) -> Any:
    """A model of torchvision. ``tiny``: the same model on two pictures of 64 by 64."""

    def build(tiny: bool) -> Any:
        from torchvision import models

        shape = (2, 3, 64, 64) if tiny and name != "maxvit_t" else (2 if tiny else batch, 3, side, side)

        def inputs(device: str) -> tuple[torch.Tensor, ...]:
            images = torch.randn(shape, device=device, dtype=torch.bfloat16)
            return images, torch.randint(1000, (shape[0],), device=device)

        return Classifier(getattr(models, name)(weights=None)), inputs

    return build


DECODER = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16,
           "num_key_value_heads": 8, "vocab_size": 32000}  # fmt: skip
UNSEEN = (
    Model("Swin-T", vision("swin_t", 32)),
    Model("DeBERTa-v2, 6 layers", hugging("deberta-v2", "DebertaV2ForMaskedLM", text(16, 256),
          hidden_size=768, num_hidden_layers=6, num_attention_heads=12, intermediate_size=3072,
          vocab_size=32000)),
    Model("T5-small", hugging("t5", "T5ForConditionalGeneration", text(16, 256, both=True))),
    Model("Whisper-tiny", hugging("whisper", "WhisperForConditionalGeneration",
          sound("input_features", 8, (80, 3000), (80, 512)))),
    Model("Mamba, 2 layers, 64 words", hugging("mamba", "MambaForCausalLM", text(8, 64),
          num_hidden_layers=2, vocab_size=32000)),
    Model("Mamba-2, 4 layers", hugging("mamba2", "Mamba2ForCausalLM", text(4, 512), num_hidden_layers=4,
          hidden_size=768, num_heads=24, head_dim=64, n_groups=1, vocab_size=32000)),
    Model("Swin-V2-T", vision("swin_v2_t", 32)),
    Model("EfficientNet-B0", vision("efficientnet_b0", 64)),
    Model("MobileNetV3-L", vision("mobilenet_v3_large", 128)),
    Model("RegNetY-800MF", vision("regnet_y_800mf", 64)),
    Model("DenseNet-121", vision("densenet121", 32)),
    Model("MaxViT-T", vision("maxvit_t", 16)),
    Model("ShuffleNetV2", vision("shufflenet_v2_x1_0", 128)),
    Model("ALBERT-base", hugging("albert", "AlbertForMaskedLM", text(16, 256), hidden_size=768,
          num_attention_heads=12, intermediate_size=3072)),
    Model("DistilBERT", hugging("distilbert", "DistilBertForMaskedLM", text(32, 256))),
    Model("ELECTRA-small", hugging("electra", "ElectraForMaskedLM", text(32, 256))),
    Model("MPNet, 6 layers", hugging("mpnet", "MPNetForMaskedLM", text(16, 256), num_hidden_layers=6)),
    Model("Mixtral, 4 layers", hugging("mixtral", "MixtralForCausalLM", text(4, 512),
          **{**DECODER, "num_hidden_layers": 4, "intermediate_size": 1408})),
    Model("BART-base", hugging("bart", "BartForConditionalGeneration", text(16, 256, both=True), d_model=768,
          encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
          encoder_attention_heads=12, decoder_attention_heads=12)),
    Model("OPT-125M", hugging("opt", "OPTForCausalLM", text(16, 512))),
    Model("BLOOM, 8 layers", hugging("bloom", "BloomForCausalLM", text(8, 512), hidden_size=1024, n_layer=8,
          n_head=16, vocab_size=32000)),
    Model("Pythia, 8 layers", hugging("gpt_neox", "GPTNeoXForCausalLM", text(8, 512), hidden_size=1024,
          num_hidden_layers=8, num_attention_heads=16, intermediate_size=4096)),
    Model("Gemma-2, 8 layers", hugging("gemma2", "Gemma2ForCausalLM", text(4, 1024), **DECODER)),
    Model("Qwen3, 8 layers", hugging("qwen3", "Qwen3ForCausalLM", text(4, 1024), **DECODER)),
    Model("OLMo-2, 8 layers", hugging("olmo2", "Olmo2ForCausalLM", text(4, 1024), **DECODER)),
    Model("Phi, 8 layers", hugging("phi", "PhiForCausalLM", text(4, 1024),
          **{**DECODER, "num_key_value_heads": 16})),
    Model("BEiT-base", hugging("beit", "BeitForImageClassification", pictures(32))),
    Model("DINOv2-small", hugging("dinov2", "Dinov2ForImageClassification", pictures(32), hidden_size=384,
          num_attention_heads=6, image_size=224)),
    Model("ConvNeXt-V2-T", hugging("convnextv2", "ConvNextV2ForImageClassification", pictures(32))),
    Model("SegFormer-B0", hugging("segformer", "SegformerForImageClassification", pictures(32))),
    Model("PoolFormer-S12", hugging("poolformer", "PoolFormerForImageClassification", pictures(32))),
    Model("MobileViT-S", hugging("mobilevit", "MobileViTForImageClassification", pictures(32))),
    Model("wav2vec 2.0", hugging("wav2vec2", "Wav2Vec2Model", sound("input_values", 4, (48000,), (2400,)),
          labelled=False, mask_time_prob=0.0, layerdrop=0.0)),
    Model("AST", hugging("audio-spectrogram-transformer", "ASTForAudioClassification",
          sound("input_values", 8, (1024, 128), (256, 128)))),
)  # fmt: skip
