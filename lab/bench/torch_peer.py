# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of tools/bench-train: trains one Keras model JSON and measures windows on request.

Started by peers.py in a tuned environment. It reads JSON lines on stdin and answers each with one on stdout:

    {"do": "build", "variant": {...}}   makes model and optimizer anew and warms them up
    {"do": "run", "seconds": S}         trains for about S seconds -> {"images_per_second": X, "steps": N, "loss": L}
    {"do": "end"}

A step is what Lockstep does in one: a shuffled batch gathered from memory, forward, loss, backward, the optimizer.
With --world=2 it starts a second process of its own and trains with DistributedDataParallel over gloo.
"""
import argparse
import gzip
import json
import os
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

ACTIVATIONS = {
    "relu": lambda: nn.ReLU(inplace=True), "relu6": lambda: nn.ReLU6(inplace=True), "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh, "elu": lambda: nn.ELU(inplace=True), "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "leaky_relu": lambda: nn.LeakyReLU(0.2, inplace=True),
}
WARM_UP_STEPS = 30


class SamePadding(nn.Module):
    """Zero padding as Keras's "same": the odd one at the bottom and right. `value`: what is added."""

    def __init__(self, top, bottom, left, right, value=0.0):
        super().__init__()
        self.sides, self.value = (left, right, top, bottom), value

    def forward(self, x):
        return nn.functional.pad(x, self.sides, value=self.value)


class FlattenAsKeras(nn.Module):
    """Flattens in Keras's order (rows, columns, channels); on channels_last memory that costs nothing."""

    def forward(self, x):
        return (x.permute(0, 2, 3, 1) if x.dim() == 4 else x).flatten(1)


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def same_padding(size, window, stride):
    """Rows or columns before and after, so that there are ceil(size / stride) outputs."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


class Builder:
    """Makes modules of a Sequential Keras model's layers; `shape`: of the last output, (H, W, C) or (N,)."""

    def __init__(self, channels_last):
        self.modules, self.shape, self.ended = [], None, False
        self.flatten = FlattenAsKeras if channels_last else nn.Flatten

    def activation(self, name):
        if name == "softmax":  # of the last layer: the loss takes the logits, as Lockstep's does
            self.ended = True
        elif name and name != "linear":
            self.modules.append(ACTIVATIONS[name]())

    def padding(self, mode, window, stride, value=0.0):
        """Symmetric padding as the module's own argument; the odd case as a layer before it."""
        if mode == "valid":
            return (0, 0)
        top, bottom = same_padding(self.shape[0], window[0], stride[0])
        left, right = same_padding(self.shape[1], window[1], stride[1])
        if top == bottom and left == right:
            return (top, left)
        self.modules.append(SamePadding(top, bottom, left, right, value))
        self.shape = (self.shape[0] + top + bottom, self.shape[1] + left + right, self.shape[2])
        return (0, 0)

    def slide(self, window, stride, padding, channels):
        rows, columns = ((self.shape[i] + 2 * padding[i] - window[i]) // stride[i] + 1 for i in (0, 1))
        self.shape = (rows, columns, channels)

    def conv2d(self, c):
        window, stride = pair(c["kernel_size"]), pair(c.get("strides", 1))
        if pair(c.get("dilation_rate", 1)) != (1, 1):
            raise SystemExit("bench-train: Conv2D with dilation is not offered by the PyTorch side")
        padding = self.padding(c.get("padding", "valid"), window, stride)
        groups = c.get("groups", 1)
        self.modules.append(nn.Conv2d(self.shape[2], c["filters"], window, stride, padding, groups=groups,
                                      bias=c.get("use_bias", True)))
        self.slide(window, stride, padding, c["filters"])
        self.activation(c.get("activation"))

    def pooling(self, c, module, value):
        window = pair(c.get("pool_size", 2))
        stride = pair(c.get("strides") or window)
        padding = self.padding(c.get("padding", "valid"), window, stride, value)
        extra = {"count_include_pad": False} if module is nn.AvgPool2d else {}
        if module is nn.AvgPool2d and isinstance(self.modules[-1], SamePadding):
            raise SystemExit("bench-train: AveragePooling2D with uneven padding is not offered by the PyTorch side")
        self.modules.append(module(window, stride, padding, **extra))
        self.slide(window, stride, padding, self.shape[2])

    def dense(self, c):
        if len(self.shape) != 1:
            raise SystemExit("bench-train: Dense on more than one dimension is not offered by the PyTorch side")
        self.modules.append(nn.Linear(self.shape[0], c["units"], bias=c.get("use_bias", True)))
        self.shape = (c["units"],)
        self.activation(c.get("activation"))

    def add(self, kind, c):
        if self.ended:
            raise SystemExit("bench-train: a softmax before the last layer is not offered by the PyTorch side")
        if kind == "InputLayer":
            return
        if kind == "Conv2D":
            self.conv2d(c)
        elif kind == "MaxPooling2D":
            self.pooling(c, nn.MaxPool2d, float("-inf"))
        elif kind == "AveragePooling2D":
            self.pooling(c, nn.AvgPool2d, 0.0)
        elif kind == "Flatten":
            self.modules.append(self.flatten())
            self.shape = (int(numpy.prod(self.shape)),)
        elif kind == "Dense":
            self.dense(c)
        elif kind == "Dropout":
            self.modules.append(nn.Dropout(c["rate"]))
        elif kind in ("Activation", "ReLU", "Softmax"):
            self.activation(c.get("activation") if kind == "Activation" else kind.lower())
        else:
            raise SystemExit("bench-train: layer %s is not offered by the PyTorch side" % kind)


def build_model(path, image_shape, channels_last):
    with open(path) as file:
        document = json.load(file)
    if document.get("class_name") != "Sequential":
        raise SystemExit("bench-train: %s is not a Sequential model" % path)
    config = document["config"]
    layers = config["layers"] if isinstance(config, dict) else config
    builder, shape = Builder(channels_last), first_shape(layers, image_shape)
    if shape not in (image_shape, (image_shape[0] * image_shape[1],)):
        raise SystemExit("bench-train: the model wants %s, an image is %s" % (shape, image_shape))
    builder.shape = shape
    for layer in layers:
        builder.add(layer["class_name"], layer["config"])
    if builder.shape != (10,):
        raise SystemExit("bench-train: the model must end in 10 classes, not %s" % (builder.shape,))
    return nn.Sequential(*builder.modules), len(shape)


def first_shape(layers, image_shape):
    config = layers[0]["config"]
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    return tuple(shape[1:]) if shape else image_shape


def read_idx(path, header):
    with gzip.open(path) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=header)


def load_fashion_mnist(folder, limit):
    """Images (count, 1, 28, 28) in [0, 1] as float32, and labels as int64."""
    images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"), 16).reshape(-1, 1, 28, 28)[:limit]
    labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"), 8)[:limit]
    return torch.from_numpy(images.astype(numpy.float32) / 255.0), torch.from_numpy(labels.astype(numpy.int64))


def make_optimizer(text, parameters, variant):
    """"adam:learning_rate=0.001" as Lockstep's --optimizer, with Keras's defaults."""
    name, _, rest = text.partition(":")
    options = dict(item.split("=") for item in rest.split(",") if item)
    rate = float(options.get("learning_rate", 0.001 if name == "adam" else 0.01))
    foreach = variant.get("foreach") or None
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate, eps=1e-7, foreach=foreach)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=float(options.get("momentum", 0.0)),
                               nesterov=options.get("nesterov") == "true", foreach=foreach)
    raise SystemExit("bench-train: optimizer %s is not offered by the PyTorch side" % name)


class Trainer:
    """One process's model, optimizer and endless shuffled batches."""

    def __init__(self, arguments, rank):
        self.arguments, self.rank = arguments, rank
        if arguments.pin:
            os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
        torch.set_num_threads(arguments.threads)
        if not torch.set_flush_denormal(True):  # as Lockstep's threads do
            print("bench-train: PyTorch cannot flush denormals here", file=sys.stderr)
        torch.manual_seed(rank)
        images, labels = load_fashion_mnist(arguments.data, arguments.limit)
        self.images, self.labels = images[rank::arguments.world], labels[rank::arguments.world]
        self.step = None

    def build(self, variant):
        arguments = self.arguments
        channels_last = variant.get("channels_last", True)
        model, dimensions = build_model(arguments.model, (28, 28, 1), channels_last)
        images = self.images
        if dimensions == 1:
            images = images.flatten(1)
        elif channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
            model = model.to(memory_format=torch.channels_last)
        parameters = list(model.parameters())
        if arguments.world > 1:
            model = nn.parallel.DistributedDataParallel(
                model, gradient_as_bucket_view=True, static_graph=bool(variant.get("static_graph")))
        elif variant.get("jit"):
            model = torch.jit.script(model)
        model.train()
        optimizer = make_optimizer(arguments.optimizer, parameters, variant)
        loss_function = nn.CrossEntropyLoss()
        batches = self.batches(images, channels_last and dimensions == 3)
        to_none = arguments.world == 1

        def step():
            x, y = next(batches)
            optimizer.zero_grad(set_to_none=to_none)
            loss = loss_function(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        self.step = step
        for _ in range(WARM_UP_STEPS):
            step()

    def batches(self, images, channels_last):
        count, batch = images.shape[0], min(self.arguments.batch, images.shape[0])
        while True:
            order = torch.randperm(count)
            for begin in range(0, count - batch + 1, batch):
                chosen = order[begin:begin + batch]
                x = images[chosen]
                if channels_last:
                    x = x.contiguous(memory_format=torch.channels_last)
                yield x, self.labels[chosen]

    def run_steps(self, count):
        """Trains `count` steps; seconds and the last loss."""
        begin = time.perf_counter()
        for _ in range(count):
            loss = self.step()
        return time.perf_counter() - begin, loss.item()

    def run(self, seconds):
        """Steps enough for about `seconds`, as the ranks agree on the number beforehand."""
        trial, _ = self.run_steps(10)
        steps = max(10, round(seconds / trial * 10))
        steps = int(self.agree(steps))
        elapsed, loss = self.run_steps(steps)
        images = steps * self.arguments.batch * self.arguments.world
        return {"images_per_second": images / elapsed, "steps": steps, "loss": loss}

    def agree(self, value):
        if self.arguments.world == 1:
            return value
        shared = torch.tensor([float(value)])
        torch.distributed.broadcast(shared, 0)
        return shared.item()


def obey(trainer, command):
    """Runs one command on this rank; its answer, None at the end."""
    if command["do"] == "build":
        trainer.build(command["variant"])
        return {"built": True}
    if command["do"] == "run":
        return trainer.run(command["seconds"])
    return None


def work(rank, arguments, store):
    """One rank: rank 0 reads the commands and hands them to the others."""
    world = arguments.world
    if world > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
    stdin = os.fdopen(arguments.stdin) if rank == 0 else None
    trainer = Trainer(arguments, rank)
    if rank == 0:
        print(json.dumps({"ready": True, "torch": torch.__version__}), flush=True)
    while True:
        shared = [json.loads(stdin.readline() or '{"do": "end"}') if rank == 0 else None]
        if world > 1:
            torch.distributed.broadcast_object_list(shared, 0)
        answer = obey(trainer, shared[0])
        if answer is None:
            return
        if rank == 0:
            print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Keras model JSON")
    parser.add_argument("--data", required=True, help="folder of Fashion-MNIST's four files")
    parser.add_argument("--limit", type=int, default=60000)
    parser.add_argument("--batch", type=int, default=64, help="per process")
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--pin", action="store_true", help="each process on a processor of its own")
    parser.add_argument("--optimizer", default="adam:learning_rate=0.001")
    arguments = parser.parse_args()
    arguments.stdin = os.dup(sys.stdin.fileno())
    if arguments.world == 1:
        work(0, arguments, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        # fork: nothing has run on a thread yet, and rank 0 keeps stdin.
        torch.multiprocessing.start_processes(work, (arguments, os.path.join(folder, "store")),
                                              nprocs=arguments.world, start_method="fork")


if __name__ == "__main__":
    main()
