# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of tools/bench-train --device=cuda: trains one Keras model JSON in one mode and measures windows.

Started by bench_gpu.py. It reads JSON lines on stdin and answers each with one on stdout; what cannot be done is answered
with {"failed": "why"}:

    {"do": "build", "batch": N}    makes model, optimizer and data anew and warms them up -> {"set_up": "..."}
    {"do": "run", "seconds": S}    trains for about S seconds -> {"seconds_per_step": X, "steps": N, "loss": L}
    {"do": "busy", "steps": N}     the same under torch.profiler -> what its kernels took, by CUPTI
    {"do": "end"}

PyTorch has every advantage that it offers: all examples lie on the GPU as float32 before the start and are put into a new
order there once an epoch, so that a batch is a slice; nothing is sent or read back during a window, kernels need not give
the same bits twice (cudnn.benchmark), the optimizer is one fused kernel, and images lie channels_last or NCHW, whichever
takes less time, eager. In the graph modes the whole step is one replay, behind two copies of its batch.
"""
import argparse
import contextlib
import gc
import json
import os
import sys
import time

import torch
from torch import nn

import spans_cover
import torch_peer

WARM_UP_STEPS = 20
LAYOUT_STEPS = 30
WARM_UP_SECONDS = 0.2
MODES = ("eager", "compile", "compile-max", "graph", "compile+graph")


class Unavailable(Exception):
    """This PyTorch or this machine cannot do it; the text says why."""


def first_line(error):
    lines = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, lines[0] if lines else "no message")


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def make_optimizer(text, parameters, device):
    """The fastest form that this PyTorch has: fused where there is one. A capturable one counts its steps on the GPU."""
    name, _, rest = text.partition(":")
    options = dict(item.split("=") for item in rest.split(",") if item)
    rate = float(options.get("learning_rate", 0.001 if name == "adam" else 0.01))
    capturable = {"capturable": device.type == "cuda"}
    if name == "adam":
        kind, fixed = torch.optim.Adam, dict({"lr": rate, "eps": 1e-7}, **capturable)
    elif name == "sgd":
        kind, fixed = torch.optim.SGD, {"lr": rate, "momentum": float(options.get("momentum", 0.0)),
                                        "nesterov": options.get("nesterov") == "true"}
    else:
        raise Unavailable("optimizer %s is not offered by the PyTorch side" % name)
    for form in ({"fused": True}, {"foreach": True}, {}):
        try:
            return kind(parameters, **fixed, **form), next(iter(form), "plain")
        except (RuntimeError, TypeError):
            continue
    raise Unavailable("PyTorch %s makes no %s" % (torch.__version__, name))


class Data:
    """All examples on the device, put into a new order there before each epoch, so that a batch is a slice. In the graph modes
    the slice is copied to where the graph reads it."""

    def __init__(self, arguments, batch, device, flat, layout):
        images, labels = torch_peer.load_fashion_mnist(arguments.data, arguments.limit)
        images = images.flatten(1) if flat else images.contiguous(memory_format=layout)
        self.given, self.given_labels = images.to(device), labels.to(device)
        self.images, self.labels = self.given.clone(), self.given_labels.clone()
        self.batch, self.steps = batch, images.shape[0] // batch
        if self.steps == 0:
            raise Unavailable("a batch of %d of %d examples" % (batch, images.shape[0]))
        self.done, self.fixed = self.steps, None

    def fix(self):
        """From now on a batch lies at the same place."""
        self.fixed = [part[:self.batch].clone() for part in (self.images, self.labels)]

    def gather(self):
        return self.fixed or self.slices()

    def slices(self):
        first = (self.done - 1) * self.batch
        return [part[first:first + self.batch] for part in (self.images, self.labels)]

    def advance(self):
        """Before each step: the next batch, and a new order when an epoch is over."""
        if self.done == self.steps:
            order = torch.randperm(self.labels.shape[0], device=self.labels.device)
            torch.index_select(self.given, 0, order, out=self.images)
            torch.index_select(self.given_labels, 0, order, out=self.labels)
            self.done = 0
        self.done += 1
        for place, part in zip(self.fixed or (), self.slices()):
            place.copy_(part)


class Trainer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.device = torch.device(arguments.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise Unavailable("PyTorch %s sees no GPU" % torch.__version__)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = arguments.tf32
        torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
        torch.manual_seed(0)
        self.step = self.data = self.loss = None

    def autocast(self):
        if self.arguments.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def compiled(self, function, mode):
        if not hasattr(torch, "compile"):
            raise Unavailable("PyTorch %s has no torch.compile" % torch.__version__)
        torch._dynamo.reset()  # pylint: disable=protected-access
        tuned = "max-autotune-no-cudagraphs" if mode == "compile-max" else "default"
        return torch.compile(function, mode=tuned, dynamic=False, fullgraph=True)

    def build(self, batch):
        layouts = {"channels_last": torch.channels_last, "NCHW": torch.contiguous_format}
        trials = {}
        for name, layout in layouts.items():  # which is faster depends on the GPU and the precision
            trials[name] = self.trial(batch, layout)
        best = min(trials, key=trials.get)
        form = self.make(batch, layouts[best], self.arguments.mode)
        return {"set_up": "%s, %s %s, %s, cudnn.benchmark, tf32 %s, examples on the device" % (
            self.arguments.mode, form, self.arguments.optimizer.partition(":")[0], best, "on" if self.arguments.tf32 else "off")}

    def trial(self, batch, layout):
        """Seconds for LAYOUT_STEPS steps, eager."""
        self.make(batch, layout, "eager")
        return min(self.train(self.step, LAYOUT_STEPS) for _ in range(3))

    def make(self, batch, layout, mode):
        """Model, optimizer and data anew; the form of the optimizer."""
        arguments = self.arguments
        self.step = self.data = None
        gc.collect()
        model, dimensions = torch_peer.build_model(arguments.model, (28, 28, 1), True)
        model = model.to(self.device)
        if dimensions == 3:
            model = model.to(memory_format=layout)
        model.train()
        optimizer, form = make_optimizer(arguments.optimizer, list(model.parameters()), self.device)
        self.data = Data(arguments, batch, self.device, dimensions == 1, layout)
        entropy = nn.CrossEntropyLoss()

        def loss_of(x, y):
            with self.autocast():
                return entropy(model(x), y)

        if "compile" in mode:
            loss_of = self.compiled(loss_of, mode)

        def step():
            x, y = self.data.gather()
            loss = loss_of(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        if "graph" in mode:
            self.data.fix()
        self.train(step, WARM_UP_STEPS)
        if "graph" in mode:
            step = self.captured(step)
            self.train(step, WARM_UP_STEPS)
        self.step = step
        return form

    def captured(self, step):
        """The whole step as one CUDA graph: forward, loss, backward, optimizer."""
        if self.device.type != "cuda":
            raise Unavailable("a CUDA graph needs a GPU")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.data.advance()
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()

        def replay():
            graph.replay()
            return loss

        return replay

    def train(self, step, steps):
        """Seconds for so many steps."""
        if step is None:
            raise Unavailable("nothing was built")
        synchronise(self.device)
        begin = time.perf_counter()
        for _ in range(steps):
            self.data.advance()
            self.loss = step()
        synchronise(self.device)
        return time.perf_counter() - begin

    def run(self, seconds):
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        trial = self.train(self.step, 10)
        while time.perf_counter() - begin < min(WARM_UP_SECONDS, seconds):  # clocks, and a trial that is no accident
            trial = min(trial, self.train(self.step, 10))
        steps = max(10, round(seconds / trial * 10))
        elapsed = self.train(self.step, steps)
        gc.enable()
        loss = float(self.loss)
        if loss != loss:
            raise Unavailable("the loss is no number")
        return {"seconds_per_step": elapsed / steps, "steps": steps, "loss": loss}

    def busy(self, steps):
        """What the kernels of a step take, from CUPTI's records; and the time in which at least one ran."""
        if self.device.type != "cuda":
            raise Unavailable("there are no kernels of a GPU")
        activities = [torch.profiler.ProfilerActivity.CUDA]
        self.train(self.step, 3)
        with torch.profiler.profile(activities=activities) as profile:
            elapsed = self.train(self.step, steps)
        spans = [(event.time_range.start, event.time_range.end) for event in profile.events()
                 if event.device_type == torch.autograd.DeviceType.CUDA and not event.name.startswith(("Memcpy", "Memset"))
                 and not getattr(event, "is_user_annotation", False)]
        if not spans:
            raise Unavailable("torch.profiler recorded no kernel")
        return {"kernels_per_step": len(spans) / steps, "kernel_seconds_per_step": sum(b - a for a, b in spans) * 1e-6 / steps,
                "kernel_union_seconds_per_step": spans_cover.union(spans) * 1e-6 / steps, "profiled_seconds_per_step": elapsed / steps,
                "by": "torch.profiler (CUPTI)"}


def obey(trainer, command):
    if command["do"] == "build":
        return trainer.build(command["batch"])
    if command["do"] == "run":
        return trainer.run(command["seconds"])
    if command["do"] == "busy":
        return trainer.busy(command["steps"])
    raise Unavailable("no command %s" % command["do"])


def answer(out, **fields):
    out.write(json.dumps(fields) + "\n")
    out.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Keras model JSON")
    parser.add_argument("--data", required=True, help="folder of Fashion-MNIST's four files")
    parser.add_argument("--limit", type=int, default=60000)
    parser.add_argument("--mode", choices=MODES, default="eager")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--optimizer", default="adam:learning_rate=0.001")
    arguments = parser.parse_args()
    # Libraries may print; the answers have their own descriptor.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        trainer = Trainer(arguments)
    except (Unavailable, RuntimeError) as error:
        answer(out, failed=first_line(error) if not isinstance(error, Unavailable) else str(error))
        return
    answer(out, torch=torch.__version__, cuda=torch.version.cuda,
           hardware=torch.cuda.get_device_name() if trainer.device.type == "cuda" else "the CPU: a dry run")
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "end":
            return
        try:
            result = obey(trainer, command)
        except Unavailable as error:
            result = {"failed": str(error)}
        except Exception as error:  # pylint: disable=broad-except  # whatever a compiler of graphs throws
            result = {"failed": first_line(error)}
        answer(out, **result)


if __name__ == "__main__":
    main()
