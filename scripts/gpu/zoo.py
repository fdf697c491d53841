"""The whole models of issue 3, in bf16 with random weights: ``MODELS`` by name.

A model returns a scalar loss where ``targets`` are given, else its output. Sizes are those of the real
models; ``tiny`` ones have the same structure, two layers and narrow widths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Model:
    """``build(tiny)`` gives a module in float32 on the CPU (or the meta device, where one is set as the
    default) and the makers of its inputs, ``inputs(device)``, the last of which is the target of the
    loss. ``small``: its goal is launch overhead, not bandwidth."""

    name: str
    build: Callable[[bool], tuple[nn.Module, Callable[[str], tuple[torch.Tensor, ...]]]]
    small: bool = False


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class TransformerLayer(nn.Module):
    """Post-norm, as in torch.nn.TransformerEncoderLayer, with its dropout of 0.1; the loss is the mean
    of squares."""

    def __init__(self, width: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal=False)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        x = self.norm1(x + self.drop(self.attention(x)))
        y = self.second(self.drop(F.gelu(self.first(x))))
        x = self.norm2(x + self.drop(y))
        return x if targets is None else F.mse_loss(x.float(), targets.float())


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=True)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.second(F.gelu(self.first(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 124M's shape; the output's weight is the embedding's."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for weight in (self.tokens.weight, self.places.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class SmallNet(nn.Module):
    """A few small layers on a small batch: all launch overhead."""

    def __init__(self, width: int = 256, layers: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, x: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.gelu(layer(norm(x)))
        return x if targets is None else F.mse_loss(x.float(), targets.float())


class Classifier(nn.Module):
    """An image model with its loss."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        scores = self.body(images)
        return scores if targets is None else F.cross_entropy(scores.float(), targets)


class HuggingFace(nn.Module):
    """A language model of transformers with its loss; nothing but tensors comes out."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        if targets is None:
            return self.body(input_ids=tokens).logits  # type: ignore[no-any-return]
        return self.body(input_ids=tokens, labels=targets).loss  # type: ignore[no-any-return]


# -- builders ----------------------------------------------------------------------------------


def dense(batch: int, length: int, width: int) -> Callable[[str], tuple[torch.Tensor, ...]]:
    def inputs(device: str) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(batch, length, width, device=device, dtype=torch.bfloat16) for _ in range(2))

    return inputs


def words(batch: int, length: int, vocabulary: int) -> Callable[[str], tuple[torch.Tensor, ...]]:
    def inputs(device: str) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randint(vocabulary, (batch, length), device=device) for _ in range(2))

    return inputs


def images(batch: int, side: int, classes: int) -> Callable[[str], tuple[torch.Tensor, ...]]:
    def inputs(device: str) -> tuple[torch.Tensor, ...]:
        pictures = torch.randn(batch, 3, side, side, device=device, dtype=torch.bfloat16)
        return pictures, torch.randint(classes, (batch,), device=device)

    return inputs


def transformer_layer(width: int, heads: int, batch: int, length: int) -> Any:
    def build(tiny: bool) -> Any:
        if tiny:
            return TransformerLayer(32, 4), dense(2, 16, 32)
        return TransformerLayer(width, heads), dense(batch, length, width)

    return build


def gpt2(tiny: bool) -> Any:
    if tiny:
        return GPT2(2, 32, 4, 97, 16), words(2, 16, 97)
    return GPT2(12, 768, 12, 50257, 1024), words(8, 1024, 50257)


def small(tiny: bool) -> Any:
    return SmallNet(32, 2) if tiny else SmallNet(), dense(8, 1, 32 if tiny else 256)


def bert(tiny: bool) -> Any:
    from transformers import BertConfig, BertForMaskedLM

    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
            "vocab_size": 97}  # fmt: skip
    config = BertConfig(**(size if tiny else {}))
    return HuggingFace(BertForMaskedLM(config)), words(2, 16, 97) if tiny else words(
        32, 512, config.vocab_size
    )


def llama(tiny: bool) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, inner, layers, heads, groups, vocabulary = 2048, 8192, 16, 32, 8, 128256
    if tiny:
        width, inner, layers, heads, groups, vocabulary = 32, 64, 2, 4, 2, 97
    config = LlamaConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, vocab_size=vocabulary, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    return HuggingFace(LlamaForCausalLM(config)), words(2, 16 if tiny else 2048, vocabulary)


def torchvision_model(name: str, batch: int) -> Any:
    def build(tiny: bool) -> Any:
        from torchvision import models

        if not tiny:
            body = getattr(models, name)(weights=None)
        elif name == "vit_b_16":
            body = models.VisionTransformer(32, 16, 2, 4, 32, 64, num_classes=10)
        elif name == "convnext_tiny":
            from torchvision.models.convnext import CNBlockConfig

            body = models.ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], num_classes=10)
        else:
            from torchvision.models.resnet import Bottleneck

            body = models.ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10)
        for module in body.modules():  # torchvision's ViT starts with a last layer of zeros
            if isinstance(module, nn.Linear) and not module.weight.is_meta and not module.weight.any():
                nn.init.normal_(module.weight, std=0.02)
        return Classifier(body), images(2, 32, 10) if tiny else images(batch, 224, 1000)

    return build


MODELS = (
    Model("TransformerLayer 512×8", transformer_layer(512, 8, 32, 512)),
    Model("GPT-2 124M", gpt2),
    Model("ResNet-50", torchvision_model("resnet50", 64)),
    Model("TransformerLayer 1024×16", transformer_layer(1024, 16, 16, 1024)),
    Model("BERT-base", bert),
    Model("ViT-B/16", torchvision_model("vit_b_16", 64)),
    Model("ConvNeXt-T", torchvision_model("convnext_tiny", 64)),
    Model("Llama 1B", llama),
    Model("small net", small, small=True),
)
BY_NAME = {model.name: model for model in MODELS}
