# SPDX-License-Identifier: Apache-2.0
"""The models of tools/bench-train --all in PyTorch, as its users write them: padding is an argument of the convolution
(the same on both sides, where Keras's has one row more at the bottom; sizes and work are the same), the projections of
attention are one product. The number of trained parameters is that of Keras's model, which bench_lines.py checks.
"""
import math

import torch
from torch import nn
from torch.nn import functional

MOMENTUM, EPSILON = 0.01, 1e-3  # of batch normalization; PyTorch's momentum is 1 - Keras's


def mlp1024():
    """mlp1024.json."""
    parts = []
    for inputs in 784, 1024, 1024:
        parts += [nn.Linear(inputs, 1024), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, nn.Linear(1024, 10))


def convolution(channels, filters, window, stride=1, groups=1, bias=True):
    return nn.Conv2d(channels, filters, window, stride, window // 2, groups=groups, bias=bias)


def normalization(channels, epsilon=EPSILON):
    return nn.BatchNorm2d(channels, epsilon, MOMENTUM)


class Residual(nn.Module):
    """ReLU of the sum of two paths."""

    def __init__(self, path, short):
        super().__init__()
        self.path, self.short, self.relu = path, short, nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.path(x) + self.short(x))


class Head(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.dense = nn.Linear(channels, 10)

    def forward(self, x):
        return self.dense(x.mean((2, 3)))


def resnet():
    """models/resnet.json, of the tutorial."""
    def block(channels, filters, stride, projection):
        path = nn.Sequential(convolution(channels, filters, 3, stride), normalization(filters), nn.ReLU(inplace=True),
                             convolution(filters, filters, 3), normalization(filters))
        short = nn.Sequential(convolution(channels, filters, 1, stride), normalization(filters)) if projection else nn.Identity()
        return Residual(path, short)

    parts, channels = [convolution(3, 64, 7, 2), normalization(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for filters, stride in (64, 1), (128, 2), (256, 2):
        parts += [block(channels, filters, stride, True), block(filters, filters, 1, False)]
        channels = filters
    return nn.Sequential(*parts, Head(channels))


def resnet50():
    """ResNet50 of keras.applications: the stride is in the first convolution of a block, convolutions have a bias."""
    epsilon = 1.001e-5

    def block(channels, width, stride, projection):
        path = nn.Sequential(convolution(channels, width, 1, stride), normalization(width, epsilon), nn.ReLU(inplace=True),
                             convolution(width, width, 3), normalization(width, epsilon), nn.ReLU(inplace=True),
                             convolution(width, 4 * width, 1), normalization(4 * width, epsilon))
        short = nn.Sequential(convolution(channels, 4 * width, 1, stride),
                              normalization(4 * width, epsilon)) if projection else nn.Identity()
        return Residual(path, short)

    parts = [convolution(3, 64, 7, 2), normalization(64, epsilon), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, stride in (64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2):
        for i in range(count):
            parts.append(block(channels, width, stride if i == 0 else 1, i == 0))
            channels = 4 * width
    return nn.Sequential(*parts, Head(channels))


class Inverted(nn.Module):
    """MobileNetV2's block: wide inside, a sum where it changes neither size nor channels."""

    def __init__(self, channels, filters, stride, factor):
        super().__init__()
        wide, parts = channels * factor, []
        if factor > 1:
            parts = [convolution(channels, wide, 1, bias=False), normalization(wide), nn.ReLU6(inplace=True)]
        self.path = nn.Sequential(*parts, convolution(wide, wide, 3, stride, wide, bias=False), normalization(wide),
                                  nn.ReLU6(inplace=True), convolution(wide, filters, 1, bias=False), normalization(filters))
        self.sum = stride == 1 and channels == filters

    def forward(self, x):
        return x + self.path(x) if self.sum else self.path(x)


def mobilenet_v2():
    """MobileNetV2 of keras.applications."""
    parts, channels = [convolution(3, 32, 3, 2, bias=False), normalization(32), nn.ReLU6(inplace=True)], 32
    for factor, filters, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                           (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            parts.append(Inverted(channels, filters, stride if i == 0 else 1, factor))
            channels = filters
    return nn.Sequential(*parts, convolution(channels, 1280, 1, bias=False), normalization(1280), nn.ReLU6(inplace=True),
                         Head(1280))


class Attention(nn.Module):
    def __init__(self, length, width, heads):
        super().__init__()
        self.heads, self.projections, self.output = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("hidden", torch.ones(length, length).triu(1).bool(), persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.projections(x).split(width, 2))
        if hasattr(functional, "scaled_dot_product_attention"):
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # before 2.0
            scores = q @ k.transpose(2, 3) * (1 / math.sqrt(k.shape[3]))
            y = scores.masked_fill(self.hidden, -math.inf).softmax(3) @ v
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class GptBlock(nn.Module):
    def __init__(self, length, width, heads):
        super().__init__()
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(length, width, heads)
        self.up, self.gelu, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm_a(x))
        return x + self.down(self.gelu(self.up(self.norm_b(x))))


class Gpt(nn.Module):
    """gpt.json, and others of its kind."""

    def __init__(self, words=65, length=128, width=256, heads=4, blocks=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[GptBlock(length, width, heads) for _ in range(blocks)])
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, words)
        self.register_buffer("places", torch.arange(length), persistent=False)

    def forward(self, x):
        x = self.tokens(x) + self.positions(self.places)
        return self.scores(self.norm(self.blocks(x))).flatten(0, 1)


def gpt768():
    return Gpt(width=768, heads=12)


MODELS = {"mlp1024": mlp1024, "resnet": resnet, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "gpt": Gpt, "gpt768": gpt768}
