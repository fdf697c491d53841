"""Small configs of the models of ``transformers``, made by the names of their fields."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

BATCH, LENGTH, VOCABULARY, IMAGE = 2, 12, 100, 64
WIDTH, HEADS = 64, 4

# Field names, and what a whole number there becomes at most; the first that matches decides.
SMALL: tuple[tuple[str, int], ...] = (
    (r".*vocab.*", VOCABULARY),
    (r"(num|n)_(hidden_)?layers?|(?!num_kv_shared).*_layers|depth|.*num_blocks|num_block.*", 2),
    (r".*(experts?_per_tok(en)?|top_?k(_experts)?|moe_k)", 2),
    (r"(n|topk)_groups?|topk_group", 1),
    (r"(num|n)_shared_experts", 1),
    (r"(moe_)?(num|n)_.*experts|num_experts", 4),
    (r".*(intermediate_size|ffn_dim|d_ff|n_inner|ff_dim|dim_feedforward|ffn_hidden_size|mlp_dim)(_.*)?", 96),
    (r"mamba_d_head|mamba_headdim|.*head_dim|d_kv|attention_head_size|head_size", WIDTH // HEADS),
    (r"rotary_dim|rotary_embedding_dim", WIDTH // HEADS),
    (r"num_kv_shared_layers", 0),
    (r"(kv|q)_lora_rank", 24),
    (r".*max_(position|source|target|seq).*|n_positions|n_ctx|block_size|max_length|context_length", 256),
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
# What some models want said, though their configs leave it open.
UNSAID = {
    "head_dim": WIDTH // HEADS,
    "vocab_size": VOCABULARY,
    "num_experts_per_tok": 2,
    "prediction_length": 4,
}
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
        if value is None and key in UNSAID and self.narrow:
            return UNSAID[key]
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
        if self.narrow and re.fullmatch(r"mamba_n(um)?_heads|n_mamba_heads", key):
            return 2 * HEADS  # they are of as many numbers as the others, and of twice the width
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
                size = getattr(each, "head_dim", None) or WIDTH // HEADS
                quarter = int(size * rotary.get("partial_rotary_factor", 1.0)) // 4
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
