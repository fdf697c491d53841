"""A config becomes small by the names of its fields; what has to fit together still does."""

from __future__ import annotations

from tests.from_scripts import load

CONFIG = {
    "model_type": "some", "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 6,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 11008,
    "layer_types": ["linear", "linear", "full", "linear", "linear", "full"], "rope_theta": 10000.0,
    "tie_word_embeddings": False, "image_token_id": 31999, "audio_token_id": 31998, "eos_token_id": 2,
    "vision_config": {"image_size": 336, "patch_size": 14, "num_hidden_layers": 24, "hidden_size": 1024},
    "id2label": {0: "no", 1: "yes"},
}  # fmt: skip


def test_fields_that_count_become_small() -> None:
    made = load("small_configs").Shrinker(narrow=True).shrink(CONFIG)
    assert made["hidden_size"] == made["num_attention_heads"] * made["head_dim"] == 64
    assert made["num_key_value_heads"] < made["num_attention_heads"]
    assert made["layer_types"] == ["linear", "full"] and made["num_hidden_layers"] == 2
    assert made["vision_config"]["num_hidden_layers"] == 2 and made["vision_config"]["patch_size"] == 14
    tokens = {made[name] for name in ("image_token_id", "audio_token_id", "eos_token_id")}
    assert len(tokens) == 3 and max(tokens) < made["vocab_size"] == 100
    assert made["rope_theta"] == 10000.0 and made["tie_word_embeddings"] is False
    assert made["id2label"] == CONFIG["id2label"]


def test_widths_can_stay() -> None:
    made = load("small_configs").Shrinker(narrow=False).shrink(CONFIG)
    assert (made["hidden_size"], made["num_attention_heads"], made["vocab_size"]) == (4096, 32, 100)
    assert made["num_hidden_layers"] == 2
