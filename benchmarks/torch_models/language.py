"""transformers' models, from configurations of two small layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.torch_models import vision as vision  # declares what torchvision's import needs
from benchmarks.torch_models.models import BATCH, WORDS, Subject, add, images, text

import transformers  # isort: skip

WORDED: dict[str, Any] = {"vocab_size": WORDS, "use_cache": False}
COMMON: dict[str, Any] = {
    **WORDED,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _configuration(name: str, options: dict[str, Any]) -> Any:
    """With nothing dropped."""
    config = getattr(transformers, f"{name}Config")(**options)
    for field in list(vars(config)):
        if ("drop" in field or field == "layerdrop") and isinstance(getattr(config, field), float):
            setattr(config, field, 0.0)
    return config


Inputs = Callable[[], dict[str, Any]]


def _text() -> dict[str, Any]:
    words = text()
    return {"input_ids": words, "labels": words}


def _classified() -> dict[str, Any]:
    return {"input_ids": text(), "attention_mask": _mask(), "labels": torch.arange(BATCH) % 2}


def _masked() -> dict[str, Any]:
    words = text()
    return {"input_ids": words, "attention_mask": _mask(), "labels": words}


def _mask() -> torch.Tensor:
    """Each text somewhat shorter than the one before."""
    return (torch.arange(16)[None] < 16 - 2 * torch.arange(BATCH)[:, None]).long()


def _replaced() -> dict[str, Any]:
    words = text()
    return {"input_ids": words, "attention_mask": _mask(), "labels": (words > 50).long()}


def _pictures() -> dict[str, Any]:
    return {"pixel_values": images(32), "labels": torch.arange(BATCH) % 2}


def _add(
    name: str, family: str, head: str, inputs: Inputs, common: bool = True, **options: Any
) -> None:
    def make() -> Subject:
        config = _configuration(family, {**COMMON, **options} if common else options)
        return Subject(getattr(transformers, head)(config), named=inputs())

    add("transformers", name, make)


def _gpt2(**more: Any) -> dict[str, Any]:
    return {
        **WORDED,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


_encoder_decoder = {
    **WORDED,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_kv: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8}

_add("bert", "Bert", "BertForMaskedLM", _masked)
_add("roberta", "Roberta", "RobertaForSequenceClassification", _classified)
_add(
    "distilbert",
    "DistilBert",
    "DistilBertForSequenceClassification",
    _classified,
    common=False,
    dim=32,
    n_layers=2,
    n_heads=4,
    hidden_dim=64,
    **WORDED,
)
_add("albert", "Albert", "AlbertForMaskedLM", _masked, embedding_size=16)
_add("electra", "Electra", "ElectraForPreTraining", _replaced, embedding_size=16)
_add(
    "deberta_v2",
    "DebertaV2",
    "DebertaV2ForMaskedLM",
    _masked,
    relative_attention=True,
    pos_att_type=["p2c", "c2p"],
    position_buckets=8,
)
_add("modernbert", "ModernBert", "ModernBertForMaskedLM", _masked, cls_token_id=1, sep_token_id=2)
_add("gpt2", "GPT2", "GPT2LMHeadModel", _text, common=False, **_gpt2())
_add("gpt_neox", "GPTNeoX", "GPTNeoXForCausalLM", _text)
_add("opt", "OPT", "OPTForCausalLM", _text, ffn_dim=64, word_embed_proj_dim=32)
_add(
    "bloom",
    "Bloom",
    "BloomForCausalLM",
    _text,
    common=False,
    hidden_size=32,
    n_layer=2,
    n_head=4,
    **WORDED,
)
_add("llama", "Llama", "LlamaForCausalLM", _text, **_kv)
_add("mistral", "Mistral", "MistralForCausalLM", _text, sliding_window=8, **_kv)
_add("qwen2", "Qwen2", "Qwen2ForCausalLM", _text, **_kv)
_add("gemma", "Gemma", "GemmaForCausalLM", _text, **_kv)
_add("phi", "Phi", "PhiForCausalLM", _text)
_add(
    "t5",
    "T5",
    "T5ForConditionalGeneration",
    _text,
    common=False,
    d_model=32,
    d_kv=8,
    d_ff=64,
    num_layers=2,
    num_heads=4,
    decoder_start_token_id=0,
    pad_token_id=0,
    **WORDED,
)
_add(
    "bart",
    "Bart",
    "BartForConditionalGeneration",
    _text,
    common=False,
    max_position_embeddings=64,
    **_encoder_decoder,
)
_add(
    "whisper",
    "Whisper",
    "WhisperForConditionalGeneration",
    lambda: {"input_features": torch.randn(2, 16, 40), "labels": text(2)},
    common=False,
    num_mel_bins=16,
    max_source_positions=20,
    max_target_positions=32,
    **_encoder_decoder,
)
_add(
    "wav2vec2",
    "Wav2Vec2",
    "Wav2Vec2ForSequenceClassification",
    lambda: {"input_values": torch.randn(2, 800), "labels": torch.arange(2)},
    conv_dim=(16, 16),
    conv_stride=(5, 2),
    conv_kernel=(10, 3),
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=2,
    apply_spec_augment=False,
)
_add(
    "vit of transformers",
    "ViT",
    "ViTForImageClassification",
    _pictures,
    image_size=32,
    patch_size=8,
)
_add(
    "clip",
    "CLIP",
    "CLIPModel",
    lambda: {
        "input_ids": text(),
        "attention_mask": _mask(),
        "pixel_values": images(32),
        "return_loss": True,
    },
    common=False,
    text_config={**COMMON, "projection_dim": 16},
    projection_dim=16,
    vision_config={
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    },
)
_add(
    "segformer",
    "Segformer",
    "SegformerForImageClassification",
    _pictures,
    common=False,
    depths=[1, 1, 1, 1],
    hidden_sizes=[8, 16, 24, 32],
    num_attention_heads=[1, 2, 2, 4],
    decoder_hidden_size=16,
)
