"""The models of the second corpus, of which the first has none: ``SECOND``.

The unseen models, and forty more of transformers and torchvision: two layers each of the published widths,
for equal layers make equal regions.
"""

from __future__ import annotations

from typing import Any

from unseen import UNSEEN, hugging, pictures, sound, text, vision
from zoo import Model


def _words(
    kind: str, cls: str, batch: int, length: int, *, both: bool = False, layers: str = "num_hidden_layers",
    **config: Any,
) -> Model:  # fmt: skip
    more = dict.fromkeys(layers.split(), 2)
    return Model(cls, hugging(kind, cls, text(batch, length, both=both), **{**more, **config}))


def _images(kind: str, cls: str, batch: int, **config: Any) -> Model:
    return Model(cls, hugging(kind, cls, pictures(batch), **config))


_WIDE = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "vocab_size": 32000}
_GROUPED = {**_WIDE, "num_key_value_heads": 4}
_BOTH = {"both": True, "layers": "encoder_layers decoder_layers"}

SECOND = (
    *UNSEEN,
    _words("roberta", "RobertaForMaskedLM", 32, 512),
    _words("xlnet", "XLNetLMHeadModel", 16, 384, layers="n_layer"),
    _words("fnet", "FNetForMaskedLM", 32, 512),
    _words("nystromformer", "NystromformerForMaskedLM", 16, 512),
    _words("convbert", "ConvBertForMaskedLM", 16, 384),
    _words("squeezebert", "SqueezeBertForMaskedLM", 32, 256),
    _words("mobilebert", "MobileBertForMaskedLM", 32, 256),
    _words("rembert", "RemBertForMaskedLM", 16, 256, vocab_size=32000),
    _words("funnel", "FunnelForMaskedLM", 16, 256, layers="", block_sizes=[1, 1, 1]),
    _words("longformer", "LongformerForMaskedLM", 4, 2048),
    _words("big_bird", "BigBirdForMaskedLM", 4, 1024, attention_type="original_full"),
    _words("gpt_neo", "GPTNeoForCausalLM", 8, 1024, layers="num_layers",
           attention_types=[[["global", "local"], 1]]),
    _words("gptj", "GPTJForCausalLM", 8, 768, layers="n_layer", n_embd=2048, n_head=16, vocab_size=32000,
           rotary_dim=64),
    _words("codegen", "CodeGenForCausalLM", 8, 768, layers="n_layer", n_embd=1024, n_head=16, n_ctx=1024,
           rotary_dim=32),
    _words("falcon", "FalconForCausalLM", 8, 1024, hidden_size=2048, num_attention_heads=32,
           vocab_size=32000),
    _words("mpt", "MptForCausalLM", 8, 1024, layers="n_layers", d_model=2048, n_heads=16, vocab_size=32000),
    _words("starcoder2", "Starcoder2ForCausalLM", 4, 2048, **_GROUPED),
    _words("gemma", "GemmaForCausalLM", 8, 1024, **_GROUPED),
    _words("phi3", "Phi3ForCausalLM", 4, 2048, **_GROUPED, pad_token_id=0),
    _words("cohere", "CohereForCausalLM", 8, 1024, **_GROUPED),
    _words("stablelm", "StableLmForCausalLM", 8, 768, **_GROUPED),
    _words("granite", "GraniteForCausalLM", 8, 1536, **_GROUPED),
    _words("nemotron", "NemotronForCausalLM", 8, 1024, **_GROUPED),
    _words("glm", "GlmForCausalLM", 8, 768, **_GROUPED, pad_token_id=0),
    _words("persimmon", "PersimmonForCausalLM", 8, 512, **_WIDE),
    _words("biogpt", "BioGptForCausalLM", 8, 512),
    _words("mbart", "MBartForConditionalGeneration", 8, 384, vocab_size=32000, **_BOTH),
    _words("pegasus", "PegasusForConditionalGeneration", 8, 384, vocab_size=32000, **_BOTH),
    _images("deit", "DeiTForImageClassification", 64, num_hidden_layers=2),
    _images("cvt", "CvtForImageClassification", 32),
    _images("levit", "LevitForImageClassification", 64),
    _images("focalnet", "FocalNetForImageClassification", 32),
    _images("pvt", "PvtForImageClassification", 32),
    _images("pvt_v2", "PvtV2ForImageClassification", 32),
    _images("mobilenet_v2", "MobileNetV2ForImageClassification", 64),
    _images("data2vec-vision", "Data2VecVisionForImageClassification", 32, num_hidden_layers=2),
    _images("vit_mae", "ViTMAEForPreTraining", 32, num_hidden_layers=2),
    Model("HubertModel", hugging("hubert", "HubertModel", sound("input_values", 8, (48000,), (2400,)),
          labelled=False, num_hidden_layers=2, mask_time_prob=0.0, layerdrop=0.0)),
    Model("WavLMModel", hugging("wavlm", "WavLMModel", sound("input_values", 4, (48000,), (2400,)),
          labelled=False, num_hidden_layers=2, mask_time_prob=0.0, layerdrop=0.0)),
    Model("VGG-16", vision("vgg16_bn", 32)),
    Model("SqueezeNet", vision("squeezenet1_1", 64)),
    Model("MNASNet", vision("mnasnet1_0", 64)),
    Model("ResNeXt-50", vision("resnext50_32x4d", 32)),
    Model("EfficientNet-V2-S", vision("efficientnet_v2_s", 32)),
)  # fmt: skip
