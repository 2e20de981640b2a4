#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch makes of models/resnet.json on a part of CIFAR-10. tests/data/reference/resnet_cifar10.json is from here,
its parts `first_steps` and `training`:

    resnet_reference.py losses   --train=data_batch_1.bin --test=test_batch_first1000.bin --optimizer=sgd:learning_rate=0.0001 --float64
    resnet_reference.py accuracy --train=data_batch_1.bin --test=test_batch_first1000.bin --threads=1

`losses`: the loss of each step on the images in the order of the file, and the test loss after the last, from weights that a formula gives (first_weights,
the same in tests/programs/test_tutorials.py), or from --weights=FILE.safetensors. `accuracy`: training loss and test accuracy of
each epoch, with images shuffled anew, from Keras's initializers, for each seed. Both print JSON.

Everything is Keras's: padding, the initial values, the form of Adam, the coefficients of batch normalization. A batch is
cut into --replicas= parts, each normalized by itself, and the moving statistics are moved by the mean over the parts.
That is what synchronous data parallelism does without synchronized normalization; --replicas=1 is one device.
"""
import argparse
import array
import json
import math
import struct
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

MOMENTUM, EPSILON = 0.99, 1e-3  # of Keras's BatchNormalization
TEST_BATCH = 250


class BatchNormalization(nn.Module):
    """Keras's, over each of `parts` parts of the batch."""

    def __init__(self, channels, parts):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("moving_mean", torch.zeros(channels))
        self.register_buffer("moving_variance", torch.ones(channels))
        self.parts = parts

    def forward(self, x):
        if not self.training:
            return functional.batch_norm(x, self.moving_mean, self.moving_variance, self.gamma, self.beta, False, 0.0, EPSILON)
        outputs, mean, variance = [], 0.0, 0.0
        for part in x.tensor_split(self.parts):
            y, part_mean, inverse = torch.native_batch_norm(part, self.gamma, self.beta, None, None, True, 0.0, EPSILON)
            share = part.shape[0] / x.shape[0]
            mean = mean + share * part_mean.detach()
            variance = variance + share * (inverse.detach() ** -2 - EPSILON)
            outputs.append(y)
        self.moving_mean.mul_(MOMENTUM).add_(mean, alpha=1 - MOMENTUM)
        self.moving_variance.mul_(MOMENTUM).add_(variance, alpha=1 - MOMENTUM)
        return torch.cat(outputs) if self.parts > 1 else outputs[0]


def same(x, window, stride, value=0.0):
    """Pads as Keras's "same": the odd row or column at the bottom or right."""
    total = max((-(-x.shape[2] // stride) - 1) * stride + window - x.shape[2], 0)
    before, after = total // 2, total - total // 2
    return functional.pad(x, (before, after, before, after), value=value) if total else x


class Convolution(nn.Module):
    def __init__(self, channels, filters, window, stride=1):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(filters, channels, window, window))
        self.bias = nn.Parameter(torch.zeros(filters))
        self.window, self.stride = window, stride

    def forward(self, x):
        return functional.conv2d(same(x, self.window, self.stride), self.kernel, self.bias, self.stride)


class Block(nn.Module):
    """Registers its layers in the order in which Keras counts them."""

    def __init__(self, channels, filters, stride, projection, parts):
        super().__init__()
        if projection:
            self.short = nn.Sequential(Convolution(channels, filters, 1, stride), BatchNormalization(filters, parts))
        else:
            self.short = nn.Identity()
        self.one = nn.Sequential(Convolution(channels, filters, 3, stride), BatchNormalization(filters, parts), nn.ReLU())
        self.two = nn.Sequential(Convolution(filters, filters, 3), BatchNormalization(filters, parts))

    def forward(self, x):
        return functional.relu(self.two(self.one(x)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.stem = nn.Sequential(Convolution(3, 64, 7, 2), BatchNormalization(64, parts), nn.ReLU())
        blocks, channels = [], 64
        for filters, stride in (64, 1), (128, 2), (256, 2):
            blocks += [Block(channels, filters, stride, True, parts), Block(filters, filters, 1, False, parts)]
            channels = filters
        self.blocks = nn.Sequential(*blocks)
        self.dense = nn.Linear(channels, 10)

    def forward(self, x):
        x = functional.max_pool2d(same(self.stem(x), 3, 2, -math.inf), 3, 2)
        return self.dense(self.blocks(x).mean((2, 3)))


def variables(model):
    """(name in Lockstep, tensor, Keras's shape, how to make PyTorch's layout of Keras's) in the order of the layers."""
    counts = {}

    def numbered(kind):
        count = counts.get(kind, 0)
        counts[kind] = count + 1
        return f"{kind}_{count}" if count else kind

    for module in model.modules():
        if isinstance(module, Convolution):
            name, k = numbered("conv2d"), module.kernel
            yield name + "/kernel", k, (k.shape[2], k.shape[3], k.shape[1], k.shape[0]), (3, 2, 0, 1)
            yield name + "/bias", module.bias, tuple(module.bias.shape), None
        elif isinstance(module, BatchNormalization):
            name = numbered("batch_normalization")
            for part in ("gamma", "beta", "moving_mean", "moving_variance"):
                yield f"{name}/{part}", getattr(module, part), tuple(module.gamma.shape), None
        elif isinstance(module, nn.Linear):
            yield "dense/kernel", module.weight, (module.in_features, module.out_features), (1, 0)
            yield "dense/bias", module.bias, (module.out_features,), None


def glorot_limit(shape):
    window = math.prod(shape[:-2])
    return math.sqrt(6.0 / (window * (shape[-2] + shape[-1])))


def scatter(k):
    """A 32-bit number that looks drawn at random, from 32 bits."""
    k = k * 2654435761 & 0xFFFFFFFF
    k = (k ^ k >> 15) * 2246822519 & 0xFFFFFFFF
    return k ^ k >> 13


def first_weights(shapes):
    """{name: float32 values}: kernels uniform within Keras's limit by a formula, all else as Keras begins."""
    result, k = {}, 0
    for name, shape in shapes:
        count = math.prod(shape)
        if name.endswith("/kernel"):
            limit = glorot_limit(shape)
            result[name] = array.array("f", ((scatter(i) / 2**31 - 1.0) * limit for i in range(k, k + count)))
            k += count
        else:
            result[name] = array.array("f", [1.0 if name.endswith(("gamma", "variance")) else 0.0]) * count
    return result


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: numpy.frombuffer(data, "<f4", math.prod(entry["shape"]), 8 + size + entry["data_offsets"][0])
            for name, entry in header.items() if name != "__metadata__"}


def set_weights(model, values):
    with torch.no_grad():
        for name, tensor, shape, axes in variables(model):
            new = torch.from_numpy(numpy.array(values[name], "f4")).reshape(shape)
            tensor.copy_(new.permute(axes) if axes else new)


def initialize(model):
    """As Keras: glorot uniform kernels; the rest is as it is made."""
    with torch.no_grad():
        for name, tensor, shape, _ in variables(model):
            if name.endswith("/kernel"):
                tensor.uniform_(-glorot_limit(shape), glorot_limit(shape))
        model.dense.bias.zero_()


def make_optimizer(text, parameters):
    """`sgd` or `adam` as Lockstep's --optimizer; a function that takes a step."""
    name, _, rest = text.partition(":")
    options = dict(item.split("=") for item in rest.split(",") if item)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=float(options.get("learning_rate", 0.01))).step
    rate, b1, b2, steps = float(options.get("learning_rate", 0.001)), 0.9, 0.999, 0
    m, v = ([torch.zeros_like(p) for p in parameters] for _ in range(2))

    @torch.no_grad()
    def adam():  # in Keras's form
        nonlocal steps
        steps += 1
        gradients = [p.grad for p in parameters]
        torch._foreach_mul_(m, b1)
        torch._foreach_add_(m, gradients, alpha=1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - b2)
        below = torch._foreach_add(torch._foreach_sqrt(v), 1e-7)
        torch._foreach_addcdiv_(parameters, m, below, -rate * math.sqrt(1 - b2**steps) / (1 - b1**steps))
    return adam


def read_cifar(path):
    records = numpy.fromfile(path, numpy.uint8).reshape(-1, 3073)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(numpy.float32) / 255.0)
    images = images.to(torch.get_default_dtype()).contiguous(memory_format=torch.channels_last)
    return images, torch.from_numpy(records[:, 0].astype(numpy.int64))


def train_step(model, step, images, labels):
    for parameter in model.parameters():
        parameter.grad = None
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    step()
    return loss.item()


def evaluate(model, images, labels):
    """Loss and accuracy with the moving statistics."""
    model.eval()
    with torch.no_grad():
        outputs = torch.cat([model(x) for x in images.split(TEST_BATCH)])
    model.train()
    return functional.cross_entropy(outputs, labels).item(), (outputs.argmax(1) == labels).sum().item() / len(labels)


def losses(arguments):
    torch.set_default_dtype(torch.float64 if arguments.float64 else torch.float32)
    model = ResNet(arguments.replicas).to(memory_format=torch.channels_last)
    if arguments.weights:
        set_weights(model, read_safetensors(arguments.weights))
    else:
        set_weights(model, first_weights([(name, shape) for name, _, shape, _ in variables(model)]))
    step = make_optimizer(arguments.optimizer, list(model.parameters()))
    images, labels = read_cifar(arguments.train)
    batch, found = arguments.batch, []
    for i in range(arguments.steps):
        found.append(train_step(model, step, images[i * batch:(i + 1) * batch], labels[i * batch:(i + 1) * batch]))
    return {"losses": found, "val_loss": evaluate(model, *read_cifar(arguments.test))[0]}


def train_seed(arguments, seed, images, labels, tests):
    torch.manual_seed(seed)
    model = ResNet(arguments.replicas)
    initialize(model)
    model = model.to(memory_format=torch.channels_last)
    step = make_optimizer(arguments.optimizer, list(model.parameters()))
    curve = {"loss": [], "val_accuracy": []}
    for epoch in range(arguments.epochs):
        begin, total = time.perf_counter(), 0.0
        for chosen in torch.randperm(len(labels)).split(arguments.batch):
            x = images[chosen].contiguous(memory_format=torch.channels_last)
            total += len(chosen) * train_step(model, step, x, labels[chosen])
        curve["loss"].append(round(total / len(labels), 4))
        curve["val_accuracy"].append(evaluate(model, *tests)[1])
        print(f"seed {seed} epoch {epoch + 1}: {time.perf_counter() - begin:.1f} s, loss {curve['loss'][-1]}, "
              f"test accuracy {curve['val_accuracy'][-1]:.3f}", file=sys.stderr, flush=True)
    return curve


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("losses", "accuracy"))
    parser.add_argument("--train", required=True, help="CIFAR-10 binary file to train on")
    parser.add_argument("--test", required=True, help="CIFAR-10 binary file to test on")
    parser.add_argument("--weights", help="losses: safetensors to begin with instead of the formula's")
    parser.add_argument("--optimizer", default="adam:learning_rate=0.001")
    parser.add_argument("--batch", type=int, default=128, help="over all replicas")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--float64", action="store_true", help="losses: compute in double precision")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    result = {"optimizer": arguments.optimizer, "batch": arguments.batch, "replicas": arguments.replicas}
    if arguments.what == "losses":
        result.update(losses(arguments))
    else:
        data = read_cifar(arguments.train)
        tests = read_cifar(arguments.test)
        result["epochs"] = arguments.epochs
        result["seeds"] = {seed: train_seed(arguments, int(seed), *data, tests) for seed in arguments.seeds.split(",")}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
