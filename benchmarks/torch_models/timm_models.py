"""timm's models: those that it has for tests, and others at small sizes."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.torch_models import vision as vision  # declares what torchvision's import needs
from benchmarks.torch_models.models import Subject, add, images

import timm  # isort: skip
from timm.models import convmixer, metaformer, mlp_mixer  # isort: skip


def _add(name: str, size: int = 64, **options: Any) -> None:
    def make() -> Subject:
        return Subject(timm.create_model(name, num_classes=10, **options), (images(size),))

    add("timm", name, make)


def _mixer(block: Any, ratio: Any) -> Subject:
    options = {"patch_size": 16, "num_blocks": 2, "embed_dim": 64, "mlp_ratio": ratio}
    whole = mlp_mixer.MlpMixer(10, 64, block_layer=block, **options)
    return Subject(whole, (images(),))


for _name in (
    "test_byobnet test_convnext test_convnext2 test_efficientnet test_efficientnet_evos "
    "test_efficientnet_gn test_efficientnet_ln test_mambaout test_nfnet test_resnet"
).split():
    _add(_name)
for _name in "test_coatnet test_maxvit test_vit test_vit2 test_vit3 test_vit_relpos".split():
    _add(_name, img_size=64)
_small = {"img_size": 64, "patch_size": 16, "embed_dim": 64}
_add("deit_tiny_distilled_patch16_224", depth=2, num_heads=4, **_small)
_add("beit_base_patch16_224", depth=2, num_heads=4, **_small)
_add("cait_xxs24_224", depth=2, num_heads=4, **_small)
_add("xcit_nano_12_p16_224", depth=2, num_heads=4, **_small)
for _name, _block, _ratio in (
    ("mixer", mlp_mixer.MixerBlock, (0.5, 4.0)),
    ("resmlp", mlp_mixer.ResBlock, 4),
):
    add("timm", _name, partial(_mixer, _block, _ratio))
add("timm", "convmixer", lambda: Subject(convmixer.ConvMixer(32, 2, num_classes=10), (images(),)))
add(
    "timm",
    "poolformer",
    lambda: Subject(
        metaformer.MetaFormer(
            depths=(1, 1, 1, 1),
            dims=(16, 24, 32, 48),
            num_classes=10,
            token_mixers=metaformer.Pooling,
            norm_layers=metaformer.GroupNorm1,
        ),
        (images(),),
    ),
)
