# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of a line of tools/bench-train --all: trains one model of torch_models.py and measures on request.

Started by bench_lines.py in a tuned environment. It prints one JSON line when it is ready, then answers each JSON line
on stdin with one:

    {"do": "run", "seconds": S}   trains for about S seconds -> {"seconds": of a step, "steps": N, "loss": L}
    {"do": "memory"}              -> {"imported": bytes, "peak": bytes}

A step is what Lockstep does in one: a batch gathered from memory, forward, loss, backward, Adam.
"""
import argparse
import json
import resource
import sys
import time

import numpy
import torch

CLASSES = 10


def resident():
    """Bytes of memory that the process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


IMPORTED = resident()


def random_examples(shape, batch, examples, channels_last):
    """Random batches of random examples; the memory of images is in the layout that the model takes."""
    pixels = torch.rand(examples, *shape)
    labels = torch.randint(0, CLASSES, (examples,))
    if len(shape) == 3 and not channels_last:
        pixels = pixels.permute(0, 3, 1, 2).contiguous()
    while True:
        order = torch.randperm(examples)
        for begin in range(0, examples - batch + 1, batch):
            chosen = order[begin:begin + batch]
            x = pixels[chosen]
            yield x.permute(0, 3, 1, 2) if channels_last else x, labels[chosen]


def windows(path, length, batch):
    """Windows of the text, and the character that follows at each place."""
    text = numpy.fromfile(path, numpy.uint8)
    numbers = torch.from_numpy(numpy.unique(text, return_inverse=True)[1].reshape(-1).astype(numpy.int64))
    places = torch.arange(length + 1)
    while True:
        chosen = numbers[torch.randint(0, len(numbers) - length, (batch, 1)) + places]
        yield chosen[:, :-1].contiguous(), chosen[:, 1:].reshape(-1)


def make_adam(parameters):
    """The fastest that this version has for the CPU: one kernel for all, or one call for each operation."""
    try:
        optimizer = torch.optim.Adam(parameters, lr=0.001, eps=1e-7, fused=True)
        return optimizer, "fused"
    except (RuntimeError, TypeError):
        return torch.optim.Adam(parameters, lr=0.001, eps=1e-7, foreach=True), "foreach"


class Trainer:
    def __init__(self, arguments):
        import torch_models  # after what `import torch` takes was noted

        torch.set_num_threads(arguments.threads)
        torch.set_flush_denormal(True)
        torch.manual_seed(1)
        model = torch_models.MODELS[arguments.model]()
        channels_last = arguments.layout == "channels_last"
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.optimizer, self.adam = make_adam(list(model.parameters()))
        self.model = torch.compile(model) if arguments.mode == "compile" else model
        self.loss = torch.nn.CrossEntropyLoss()
        self.halves = arguments.precision == "mixed_bfloat16"
        self.batches = (windows(arguments.text, arguments.length, arguments.batch) if arguments.text else
                        random_examples([int(size) for size in arguments.shape.split("x")], arguments.batch, arguments.examples,
                                        channels_last))
        self.model.train()

    def steps(self, count):
        for _ in range(count):
            x, y = next(self.batches)
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.halves):
                loss = self.loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def run(self, seconds):
        self.steps(1)  # whoever waited has cold caches
        begin, count, loss = time.perf_counter(), 0, 0.0
        while count < 3 or time.perf_counter() - begin < seconds:
            loss = self.steps(1)
            count += 1
        return {"seconds": (time.perf_counter() - begin) / count, "steps": count, "loss": loss}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", choices=("eager", "compile"), required=True)
    parser.add_argument("--layout", choices=("channels_last", "contiguous"), required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32", help="the second by autocast")
    parser.add_argument("--shape", help="of an example: 784 or 64x64x3")
    parser.add_argument("--examples", type=int, default=160)
    parser.add_argument("--text", help="a file, whose windows are trained on instead")
    parser.add_argument("--length", type=int, help="of a window")
    trainer = Trainer(parser.parse_args())
    loss = trainer.steps(3)
    print(json.dumps({"version": torch.__version__, "parameters": trainer.parameters, "adam": trainer.adam, "loss": loss}),
          flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "run":
            answer = trainer.run(command["seconds"])
        else:
            answer = {"imported": IMPORTED, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
