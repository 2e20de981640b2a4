# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of tools/bench-train --device=cuda: trains Keras model JSONs on one GPU and measures windows.

Started by bench_gpu.py. It keeps every case that it has built. It reads JSON lines on stdin and answers each with one on
stdout; what cannot be done is answered with {"failed": "why"}. CASE is a name of the caller's choice:

    {"do": "compile", "case": CASE, "model": FILE, "batch": N, "layout": L}   makes model, optimizer and data, and compiles;
                                                                             other processes may use GPU and processors
    {"do": "build", "case": CASE, ..., "modes": [M, ...]}   warms up; the same fields where nothing was compiled before
                            -> {"layout": L, "set_up": "...", "modes": {M: null or why it is not to be had}}
    {"do": "run", "case": CASE, "mode": M, "seconds": S}    trains for about S seconds -> {"seconds_per_step": X, "steps": N, "loss": L}
    {"do": "watch"}                                         starts torch.profiler, which slows down what this process does later
    {"do": "busy", "case": CASE, "mode": M, "steps": N}     trains under it -> what kernels took (kernel_table.py)

PyTorch has every advantage that it offers: all examples lie on the GPU as float32 before the start and are put into a new
order there once an epoch, so that a batch is a slice; nothing is sent or read back during a window, kernels need not give
the same bits twice (cudnn.benchmark), the optimizer is one fused kernel, and images lie channels_last or NCHW, whichever
takes less time, eager (layout null; what is compiled without one gets channels_last). In the graph modes the whole step is
one replay, behind two copies of its batch. Modes with and without a graph share a process, model and what was compiled:
cuDNN's choices are made once, and no compiler works twice.
"""
import argparse
import concurrent.futures
import contextlib
import functools
import gc
import json
import os
import sys
import time

import torch
from torch import nn

import kernel_table
import torch_models
import torch_peer

WARM_UP_STEPS = 20
LONG_TRIAL_SECONDS = 0.1  # of five steps: then five are enough for a trial
LAYOUT_STEPS = 30
WARM_UP_SECONDS = 0.2
COMPILERS = {"eager": None, "compile": "default", "compile-max": "max-autotune-no-cudagraphs"}
LAYOUTS = {"channels_last": torch.channels_last, "NCHW": torch.contiguous_format}
IMAGE = (28, 28, 1)  # of Fashion-MNIST
GPTS, LETTERS, CONTEXT = ("gpt", "gpt768"), 65, 128


class Unavailable(Exception):
    """This PyTorch or this machine cannot do it; the text says why."""


def first_line(error):
    if isinstance(error, Unavailable):
        return str(error)
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


@functools.lru_cache(None)
def fashion_mnist(folder, limit):
    return torch_peer.load_fashion_mnist(folder, limit)


class Data:
    """All examples on the device, put into a new order there before each epoch, so that a batch is a slice."""

    def __init__(self, images, labels, batch):
        self.given, self.given_labels = images, labels
        self.images, self.labels = self.given.clone(), self.given_labels.clone()
        self.batch, self.steps = batch, images.shape[0] // batch
        if self.steps == 0:
            raise Unavailable("a batch of %d of %d examples" % (batch, images.shape[0]))
        self.done = self.steps

    def next(self):
        """The next batch, in a new order when an epoch is over."""
        if self.done == self.steps:
            order = torch.randperm(self.labels.shape[0], device=self.labels.device)
            torch.index_select(self.given, 0, order, out=self.images)
            torch.index_select(self.given_labels, 0, order, out=self.labels)
            self.done = 0
        first = self.done * self.batch
        self.done += 1
        return [part[first:first + self.batch] for part in (self.images, self.labels)]


class Case:
    """One model and batch. `steps`: of each mode, a function that trains one step and returns its loss."""

    def __init__(self, trainer, command):
        arguments, self.device, layout = trainer.arguments, trainer.device, command["layout"]
        module, images, labels = self.load(arguments, command)
        self.module = module.to(self.device)
        self.layout = "flat" if images.dim() == 2 else layout
        if images.dim() == 4:
            self.module, images = (part.to(memory_format=LAYOUTS[layout]) for part in (self.module, images))
        self.module.train()
        self.optimizer, self.form = make_optimizer(arguments.optimizer, list(self.module.parameters()), self.device)
        self.data, self.steps = Data(images.to(self.device), labels.to(self.device), command["batch"]), {}
        entropy = nn.CrossEntropyLoss()

        def loss_of(x, y):
            with trainer.autocast():
                return entropy(self.module(x), y.flatten())

        # Code of its own: compilers keep what they make beside the code, and only so many variants of it.
        loss_of.__code__ = loss_of.__code__.replace()
        self.loss_of = trainer.compiled(loss_of)

    @staticmethod
    def load(arguments, command):
        """The module, and examples: Fashion-MNIST, or noise and random letters for the models of torch_models.py."""
        model, layout = command["model"], command["layout"]
        name = os.path.basename(model).partition(".")[0]
        random = torch.Generator().manual_seed(0)
        if name in GPTS:
            letters, after = torch.randint(LETTERS, (2, command["examples"], CONTEXT), generator=random)
            return torch_models.MODELS[name](), letters, after
        if name in torch_models.MODELS:
            return (torch_models.MODELS[name](), torch.rand((command["examples"], 3, command["pixels"], command["pixels"]), generator=random),
                    torch.randint(10, (command["examples"],), generator=random))
        images, labels = fashion_mnist(arguments.data, arguments.limit)
        try:
            module, dimensions = torch_peer.build_model(model, IMAGE, layout == "channels_last")
        except SystemExit as error:
            raise Unavailable(str(error)) from error
        return module, images.flatten(1) if dimensions == 1 else images, labels

    def step(self, x, y):
        loss = self.loss_of(x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def build(self, modes):
        """{mode: None or why there is none}."""
        self.steps = {None: lambda: self.step(*self.data.next())}
        self.train(None, WARM_UP_STEPS)
        why = {}
        for mode in modes:
            why[mode] = None
            try:
                self.steps[mode] = self.captured() if "graph" in mode else self.steps[None]
                self.train(mode, WARM_UP_STEPS)
            except Exception as error:  # pylint: disable=broad-except
                why[mode] = first_line(error)
        return why

    def captured(self):
        """The whole step as one CUDA graph: forward, loss, backward, optimizer. Its batch lies at a fixed place."""
        if self.device.type != "cuda":
            raise Unavailable("a CUDA graph needs a GPU")
        fixed = [part.clone() for part in self.data.next()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(*fixed)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self.step(*fixed)

        def replay():
            for place, part in zip(fixed, self.data.next()):
                place.copy_(part)
            graph.replay()
            return loss

        return replay

    def train(self, mode, steps):
        """Seconds for so many steps."""
        if mode not in self.steps:
            raise Unavailable("this mode was not built")
        step = self.steps[mode]
        synchronise(self.device)
        begin = time.perf_counter()
        for _ in range(steps):
            self.loss = step()
        synchronise(self.device)
        return time.perf_counter() - begin


class Trainer:
    def __init__(self, arguments):
        self.arguments, self.cases = arguments, {}
        self.device = torch.device(arguments.device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise Unavailable("PyTorch %s sees no GPU" % torch.__version__)
        tf32 = arguments.precision == "tf32"
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.manual_seed(0)
        torch.zeros(1, device=self.device)  # a context takes its time

    def autocast(self):
        if self.arguments.precision != "mixed_bfloat16":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def compiled(self, function):
        tuned = COMPILERS[self.arguments.compiler]
        return torch.compile(function, mode=tuned, dynamic=False, fullgraph=True) if tuned else function

    def make(self, command):
        return Case(self, command)

    def compile(self, command):
        """Runs the first steps on a thread of their own, forward and backward: what cuDNN measures while other processes use
        the GPU is kept for that thread alone, and it measures again in `build`."""
        def first_steps():
            with torch.autograd.set_multithreading_enabled(False):
                for _ in range(2):
                    case.step(*case.data.next())
                synchronise(self.device)

        command["layout"] = command["layout"] or "channels_last"
        case = self.cases[command["case"]] = self.make(command)
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            executor.submit(first_steps).result()
        return {}

    def build(self, command):
        case = self.cases.get(command["case"]) or self.fastest(command)
        why = case.build(command["modes"])
        self.cases[command["case"]] = case
        return {"layout": case.layout, "modes": why, "set_up": "%s %s, %s, cudnn.benchmark, %s, examples on the device" % (
            case.form, self.arguments.optimizer.partition(":")[0], case.layout, self.arguments.precision)}

    def fastest(self, command):
        """The case in the layout that takes less time, eager; which one depends on the GPU and the precision."""
        if command["layout"]:
            return self.make(command)
        trials = {}
        for layout in LAYOUTS:
            command["layout"] = layout
            case = self.make(command)
            if case.layout == "flat":
                return case
            case.build([])
            steps = LAYOUT_STEPS if case.train(None, 5) < LONG_TRIAL_SECONDS else 5
            trials[min(case.train(None, steps) for _ in range(3))] = case
        return trials[min(trials)]

    def run(self, command):
        case, mode, seconds = self.cases[command["case"]], command["mode"], command["seconds"]
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        trial = case.train(mode, 10)
        while time.perf_counter() - begin < min(WARM_UP_SECONDS, seconds):  # clocks, and a trial that is no accident
            trial = min(trial, case.train(mode, 10))
        steps = max(10, round(seconds / trial * 10))
        elapsed = case.train(mode, steps)
        gc.enable()
        loss = float(case.loss)
        if loss != loss:
            raise Unavailable("the loss is no number")
        return {"seconds_per_step": elapsed / steps, "steps": steps, "loss": loss}

    def profile(self):
        if self.device.type != "cuda":
            raise Unavailable("there are no kernels of a GPU")
        return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    def watch(self, _):
        with self.profile():
            synchronise(self.device)
        return {}

    def busy(self, command):
        """What the kernels of a step take, from CUPTI's records."""
        case, mode, steps = self.cases[command["case"]], command["mode"], command["steps"]
        case.train(mode, 3)
        with self.profile() as profile:
            elapsed = case.train(mode, steps)
        records = [(event.name, event.time_range.start * 1e-6, event.time_range.end * 1e-6, None) for event in profile.events()
                   if event.device_type == torch.autograd.DeviceType.CUDA and not getattr(event, "is_user_annotation", False)]
        if not records:
            raise Unavailable("torch.profiler recorded no kernel")
        return dict(kernel_table.table(records, steps, "torch.profiler (CUPTI)"), recorded_seconds_per_step=elapsed / steps)


def answer(out, **fields):
    out.write(json.dumps(fields) + "\n")
    out.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of Fashion-MNIST's four files")
    parser.add_argument("--limit", type=int, default=60000)
    parser.add_argument("--compiler", choices=COMPILERS, default="eager")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=("float32", "tf32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--optimizer", default="adam:learning_rate=0.001")
    arguments = parser.parse_args()
    # Libraries may print; the answers have their own descriptor.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        trainer = Trainer(arguments)
    except (Unavailable, RuntimeError) as error:
        answer(out, failed=first_line(error))
        return
    answer(out, torch=torch.__version__, cuda=torch.version.cuda,
           hardware=torch.cuda.get_device_name() if trainer.device.type == "cuda" else "the CPU: a dry run")
    do = {name: getattr(trainer, name) for name in ("compile", "build", "run", "watch", "busy")}
    for line in sys.stdin:
        command = json.loads(line)
        try:
            result = do[command["do"]](command)
        except Exception as error:  # pylint: disable=broad-except  # whatever a compiler of graphs throws
            result = {"failed": first_line(error)}
        answer(out, **result)


if __name__ == "__main__":
    main()
