"""torchvision's models: its classes at small widths and depths."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.torch_models.models import Subject, add, images
from benchmarks.torch_networks import torchvision_models

models = torchvision_models()

from torchvision.models import segmentation, video  # noqa: E402
from torchvision.models.convnext import CNBlockConfig  # noqa: E402
from torchvision.models.efficientnet import FusedMBConvConfig, MBConvConfig  # noqa: E402
from torchvision.models.mobilenetv3 import InvertedResidualConfig  # noqa: E402
from torchvision.models.regnet import BlockParams  # noqa: E402
from torchvision.models.resnet import Bottleneck  # noqa: E402

CLASSES = 10


def _add(name: str, make: Any, size: int = 64, batch: int = 4) -> None:
    add("torchvision", name, lambda: Subject(make(), (images(size, batch),)))


def _mobilenet_v3() -> torch.nn.Module:
    config = partial(InvertedResidualConfig, dilation=1, width_mult=1.0)
    settings = [
        config(16, 3, 16, 16, True, "RE", 2),
        config(16, 3, 48, 24, False, "RE", 2),
        config(24, 5, 64, 24, True, "HS", 1),
        config(24, 5, 96, 48, True, "HS", 2),
    ]
    return models.MobileNetV3(settings, 96, num_classes=CLASSES)


def _efficientnet() -> torch.nn.Module:
    settings = [
        MBConvConfig(1, 3, 1, 16, 8, 1),
        MBConvConfig(4, 3, 2, 8, 16, 2),
        MBConvConfig(4, 5, 2, 16, 24, 1),
    ]
    return models.EfficientNet(settings, 0.0, num_classes=CLASSES, last_channel=64)


def _efficientnet_v2() -> torch.nn.Module:
    settings = [
        FusedMBConvConfig(1, 3, 1, 16, 8, 1),
        FusedMBConvConfig(4, 3, 2, 8, 16, 1),
        MBConvConfig(4, 3, 2, 16, 24, 2),
    ]
    norm = partial(torch.nn.BatchNorm2d, eps=1e-3)
    return models.EfficientNet(settings, 0.0, num_classes=CLASSES, norm_layer=norm, last_channel=64)


def _convnext() -> torch.nn.Module:
    settings = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 1), CNBlockConfig(48, None, 2)]
    return models.ConvNeXt(settings, layer_scale=0.5, num_classes=CLASSES)


def _vgg() -> torch.nn.Module:
    layers = models.vgg.make_layers([16, "M", 32, "M", 48, 48, "M"], batch_norm=True)
    whole = models.VGG(layers, num_classes=CLASSES)
    whole.avgpool = torch.nn.AdaptiveAvgPool2d(2)
    whole.classifier[0] = torch.nn.Linear(48 * 4, 64)
    whole.classifier[3] = torch.nn.Linear(64, 64)
    whole.classifier[6] = torch.nn.Linear(64, CLASSES)
    return whole


def _deeplab() -> torch.nn.Module:
    return segmentation.deeplabv3._deeplabv3_resnet(_dilated(), CLASSES, None)


def _fcn() -> torch.nn.Module:
    return segmentation.fcn._fcn_resnet(_dilated(), CLASSES, True)


def _dilated() -> torch.nn.Module:
    return models.resnet._resnet(
        Bottleneck,
        [1, 1, 1, 1],
        None,
        False,
        width_per_group=8,
        replace_stride_with_dilation=[False, True, True],
    )


def _swin(block: Any = None, merge: Any = None) -> torch.nn.Module:
    more = {} if block is None else {"block": block, "downsample_layer": merge}
    return models.SwinTransformer(
        [4, 4], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=CLASSES, **more
    )


_add("alexnet", lambda: models.alexnet(num_classes=CLASSES))
_add("vgg", _vgg)
_add("squeezenet1_1", lambda: models.squeezenet1_1(num_classes=CLASSES))
_add("googlenet", lambda: models.GoogLeNet(CLASSES, aux_logits=False, init_weights=False))
_add("resnet18", lambda: models.resnet18(num_classes=CLASSES))
_add(
    "resnet50 of 4 blocks",
    lambda: models.ResNet(Bottleneck, [1, 1, 1, 1], CLASSES, width_per_group=16),
)
_add(
    "resnext50 of 4 blocks",
    lambda: models.ResNet(Bottleneck, [1, 1, 1, 1], CLASSES, groups=8, width_per_group=4),
)
_add("densenet", lambda: models.DenseNet(8, (2, 3, 2), 16, num_classes=CLASSES))
_add(
    "mobilenet_v2",
    lambda: models.MobileNetV2(CLASSES, 0.5, [[1, 16, 1, 1], [4, 24, 2, 2], [4, 32, 2, 2]]),
)
_add("mobilenet_v3", _mobilenet_v3)
_add("mnasnet", lambda: models.MNASNet(0.25, CLASSES))
_add("shufflenet_v2", lambda: models.ShuffleNetV2([2, 2, 2], [24, 16, 32, 64, 96], CLASSES))
_add(
    "regnet_y",
    lambda: models.RegNet(
        BlockParams([1, 1, 2], [16, 32, 48], [8, 8, 8], [2, 2, 2], [1, 1, 1], 0.25),
        num_classes=CLASSES,
        stem_width=16,
    ),
)
_add("efficientnet", _efficientnet)
_add("efficientnet_v2", _efficientnet_v2)
_add("convnext", _convnext)
_add("vit", lambda: models.VisionTransformer(64, 16, 2, 4, 64, 128, num_classes=CLASSES))
_add("swin", _swin)
_add(
    "swin_v2",
    lambda: _swin(
        models.swin_transformer.SwinTransformerBlockV2, models.swin_transformer.PatchMergingV2
    ),
)
_add(
    "maxvit", lambda: models.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=CLASSES)
)
_add("fcn", _fcn)
_add("deeplabv3", _deeplab)
add(
    "torchvision",
    "r3d",
    lambda: Subject(
        video.VideoResNet(
            video.resnet.BasicBlock,
            [video.resnet.Conv3DSimple] * 4,
            [1, 1, 1, 1],
            video.resnet.BasicStem,
            CLASSES,
        ),
        (torch.randn(2, 3, 4, 32, 32),),
    ),
)
