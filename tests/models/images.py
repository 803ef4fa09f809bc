"""Networks for images, each written once for graphc and PyTorch: `nn` is either's module of layers
and `lib` either's package, so that a PyTorch user's text works as it is."""

from __future__ import annotations

from typing import Any


def resnet(nn: Any, lib: Any, depth: int = 18, width: int = 64, classes: int = 10) -> Any:
    """ResNet v1: basic blocks (18 layers) or bottlenecks (50)."""

    class Block(nn.Module):
        def __init__(self, inputs: int, channels: int, stride: int) -> None:
            super().__init__()
            if depth == 18:
                shapes = [(inputs, channels, 3, stride), (channels, channels, 3, 1)]
            else:
                shapes = [
                    (inputs, channels, 1, 1),
                    (channels, channels, 3, stride),
                    (channels, 4 * channels, 1, 1),
                ]
            self.outputs = shapes[-1][1]
            for i, (before, after, size, step) in enumerate(shapes, 1):
                conv = nn.Conv2d(before, after, size, step, size // 2, bias=False)
                setattr(self, f"conv{i}", conv)
                setattr(self, f"bn{i}", nn.BatchNorm2d(after))
            self.layers = len(shapes)
            self.downsample = None
            if stride != 1 or inputs != self.outputs:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inputs, self.outputs, 1, stride, bias=False),
                    nn.BatchNorm2d(self.outputs),
                )

        def forward(self, x: Any) -> Any:
            y = x
            for i in range(1, self.layers + 1):
                y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
                y = lib.relu(y) if i < self.layers else y
            return lib.relu(y + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
            self.bn1, self.maxpool = nn.BatchNorm2d(width), nn.MaxPool2d(3, 2, 1)
            inputs = width
            for stage, count in enumerate({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth], 1):
                blocks = []
                for place in range(count):
                    stride = 2 if stage > 1 and place == 0 else 1
                    blocks.append(Block(inputs, width << (stage - 1), stride))
                    inputs = blocks[-1].outputs
                setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            self.fc = nn.Linear(inputs, classes)

        def forward(self, x: Any) -> Any:
            x = self.maxpool(lib.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean((2, 3)))

    return ResNet()


def vgg(nn: Any, lib: Any, width: int = 8, classes: int = 10) -> Any:
    """Pairs of 3 x 3 convolutions with biases, pooling, and dense layers, for 16 x 16 images."""

    def stage(inputs: int, outputs: int) -> list[Any]:
        return [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
        ]

    return nn.Sequential(
        *stage(3, width),
        *stage(width, 2 * width),
        nn.Flatten(),
        nn.Linear(2 * width * 16, 4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, classes),
    )


def mobilenet(nn: Any, lib: Any, classes: int = 10) -> Any:
    """Inverted residuals of MobileNetV2: 1 x 1 up, 3 x 3 depthwise, 1 x 1 down, relu6 between."""

    def block(inputs: int, outputs: int, size: int, stride: int, groups: int) -> list[Any]:
        conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU6()]

    class Inverted(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
            super().__init__()
            inner = inputs * expand
            self.conv = nn.Sequential(
                *block(inputs, inner, 1, 1, 1),
                *block(inner, inner, 3, stride, inner),
                nn.Conv2d(inner, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            self.same = stride == 1 and inputs == outputs

        def forward(self, x: Any) -> Any:
            return x + self.conv(x) if self.same else self.conv(x)

    class MobileNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(
                *block(3, 8, 3, 2, 1),
                Inverted(8, 12, 1, 2),
                Inverted(12, 12, 1, 3),
                Inverted(12, 16, 2, 3),
            )
            self.classifier = nn.Linear(16, classes)

        def forward(self, x: Any) -> Any:
            return self.classifier(self.features(x).mean((2, 3)))

    return MobileNet()


def unet(nn: Any, lib: Any, classes: int = 3) -> Any:
    """Two steps down and up again, each level's features concatenated to those from below; a class
    for every pixel."""

    def twice(inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(2, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.bottom = twice(3, 6), twice(6, 10), twice(10, 16)
            self.pool = nn.MaxPool2d(2)
            self.up2, self.up1 = nn.ConvTranspose2d(16, 10, 2, 2), nn.ConvTranspose2d(10, 6, 2, 2)
            self.join2, self.join1 = twice(20, 10), twice(12, 6)
            self.head = nn.Conv2d(6, classes, 1)

        def forward(self, x: Any) -> Any:
            one = self.down1(x)
            two = self.down2(self.pool(one))
            y = self.up2(self.bottom(self.pool(two)))
            y = self.up1(self.join2(lib.concat([two, y], 1)))
            return self.head(self.join1(lib.concat([one, y], 1)))

    return UNet()


def inception(nn: Any, lib: Any, classes: int = 10) -> Any:
    """Branches of 1 x 1, 3 x 3, factorised 5 x 5 and pooling side by side, concatenated."""

    class Convolution(nn.Module):
        def __init__(self, inputs: int, outputs: int, size: Any, padding: Any = 0) -> None:
            super().__init__()
            self.conv = nn.Conv2d(inputs, outputs, size, padding=padding, bias=False)
            self.bn = nn.BatchNorm2d(outputs, eps=0.001)

        def forward(self, x: Any) -> Any:
            return lib.relu(self.bn(self.conv(x)))

    class Block(nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.one = Convolution(inputs, 6, 1)
            self.three = nn.Sequential(Convolution(inputs, 4, 1), Convolution(4, 8, 3, 1))
            self.five = nn.Sequential(
                Convolution(inputs, 4, 1), Convolution(4, 5, (1, 5), (0, 2)),
                Convolution(5, 6, (5, 1), (2, 0)),
            )  # fmt: skip
            self.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), Convolution(inputs, 4, 1))

        def forward(self, x: Any) -> Any:
            return lib.concat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)

    class Inception(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.pool = Convolution(3, 8, 3), nn.MaxPool2d(3, 2)
            self.block = Block(8)
            self.fc = nn.Linear(24, classes)

        def forward(self, x: Any) -> Any:
            return self.fc(self.block(self.pool(self.stem(x))).mean((2, 3)))

    return Inception()


def autoencoder(nn: Any, lib: Any) -> Any:
    """Images to 12 numbers and back, by strided and transposed convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, 2, 1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(6, 10, 3, 2, 1),
        nn.ELU(),
        nn.Flatten(),
        nn.Linear(160, 12),
        nn.Tanh(),
        nn.Linear(12, 160),
        nn.Unflatten(1, (10, 4, 4)),
        nn.ConvTranspose2d(10, 6, 3, 2, 1, output_padding=1),
        nn.SiLU(),
        nn.ConvTranspose2d(6, 1, 4, 2, 1),
        nn.Sigmoid(),
    )
