#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether gradients that filters (--compress) have rounded or left out teach as much: a small GPT and `cnn`.

usage: compression.py [--program=FILE] [--plugins=DIR] [--text=FILE] [--images=DIR] [--seeds=3] [--replicas=2]
                      [--filters="int8 fp8 ..."] [--only=gpt|cnn] [--rate=0.001] [--json=FILE]

The GPT has 2 layers of width 64 and windows of 32 characters, and takes 2,000 steps, one pass over its text; its figure is the mean
training loss of the last 100 steps, by the means of 1,900 steps and, from their checkpoint on, of 2,000. `cnn` makes one epoch; its figure is the accuracy on the validation data. Each with the same seeds
without a filter and with each filter. Prints the means over the seeds, the spread (largest minus smallest) and for the GPT the ratio
to no filter, and the bytes that a rank sends in a step.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "..", "shared", "data")
FILTERS = "int8 fp8 topk:fraction=0.01 powersgd:rank=4,start=200"
NARROW = {1024: 256, 256: 64, 64: 16, 128: 32} # units, width, width of a head, length
LENGTH, STRIDE, BATCH, STEPS, LAST = 32, 17, 32, 2000, 100


def narrower(value):
    if isinstance(value, list):
        return [narrower(each) for each in value]
    if isinstance(value, dict):
        return {key: narrower(each) for key, each in value.items()}
    return NARROW.get(value, value) if type(value) is int else value


def small_gpt():
    """The GPT of gpt.json without its last two blocks, and narrower."""
    with open(os.path.join(ROOT, "lab", "bench", "gpt.json"), encoding="utf-8") as file:
        model = narrower(json.load(file))
    layers = [layer for layer in model["config"]["layers"] if not re.search(r"_[34][ab]?$", layer["name"])]
    text = json.dumps(layers).replace('"residual_4b"', '"residual_2b"')
    model["config"]["layers"] = json.loads(text)
    return model


def run(options, folder, filter_text, seed, *more):
    report = os.path.join(folder, "report.json")
    command = [options.program, "train", f"--plugin-path={options.plugins}", f"--seed={seed}", "--quiet", "--threads=1",
               f"--replicas={options.replicas}", f"--report={report}", *more, *([f"--compress={filter_text}"] if filter_text else [])]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"compression: {' '.join(command)}\n{done.stderr}")
    with open(report, encoding="utf-8") as file:
        return json.load(file)


def gpt(options, folder, filter_text, seed):
    model = os.path.join(folder, "gpt.json")
    with open(model, "w", encoding="utf-8") as file:
        json.dump(small_gpt(), file)
    sums = []
    with tempfile.TemporaryDirectory() as checkpoints:
        for steps in (STEPS - LAST, STEPS):
            report = run(options, folder, filter_text, seed, f"--model={model}", f"--batch={BATCH}", f"--steps={steps}", "--validation=off",
                         f"--dataset=text:file={options.text},length={LENGTH},stride={STRIDE},limit={BATCH * STEPS}", "--resume",
                         f"--optimizer=adamw:learning_rate={options.rate},beta_2=0.99,weight_decay=0.1", f"--checkpoint-dir={checkpoints}")
            assert report["epochs"][-1]["steps"] == steps
            sums.append(report["epochs"][-1]["loss"] * steps)
    return (sums[1] - sums[0]) / LAST, report


def cnn(options, folder, filter_text, seed):
    report = run(options, folder, filter_text, seed, f"--model={ROOT}/models/cnn.json", "--batch=64", "--epochs=1",
                 f"--dataset=mnist:dir={options.images}")
    return report["epochs"][-1]["val_accuracy"], report


def table(name, rows, filters):
    print(f"\n{name:36} {'mean':>8} {'spread':>8} {'ratio':>8} {'bytes/step':>11}   each seed")
    plain = [row["value"] for row in rows if not row["filter"]]
    for filter_text in filters:
        own = [row for row in rows if row["filter"] == filter_text]
        values = [row["value"] for row in own]
        mean = sum(values) / len(values)
        print(f"{filter_text or 'none':36} {mean:8.4f} {max(values) - min(values):8.4f} {mean / (sum(plain) / len(plain)):8.4f} {own[0]['bytes']:11}   "
              + " ".join(f"{value:.4f}" for value in values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "tools", "lockstep"))
    parser.add_argument("--plugins", default=os.path.join(ROOT, "build", "plugins"))
    parser.add_argument("--text", default=os.path.join(DATA, "tinyshakespeare", "input.txt"))
    parser.add_argument("--images", default=os.path.join(DATA, "mnist"))
    parser.add_argument("--filters", type=str.split, default=FILTERS.split())
    parser.add_argument("--only", choices=("gpt", "cnn"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.001, help="learning rate of the GPT")
    parser.add_argument("--json", help="where the rows are written, too")
    options = parser.parse_args()
    rows, filters = [], [None, *options.filters]
    with tempfile.TemporaryDirectory() as folder:
        for name, train in (("gpt", gpt), ("cnn", cnn)):
            for seed in range(options.seeds if options.only in (None, name) else 0):
                for filter_text in filters:
                    value, report = train(options, folder, filter_text, seed)
                    rows.append({"model": name, "filter": filter_text, "seed": seed, "value": value,
                                 "bytes": report["communication"]["bytes_per_step_per_rank"]})
                    print(f"{name} seed {seed} {filter_text or 'none':36} {value:.4f}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    for name, title in (("gpt", "GPT: loss of the last 100 steps"), ("cnn", "cnn: validation accuracy")):
        if any(row["model"] == name for row in rows):
            table(title, [row for row in rows if row["model"] == name], filters)


if __name__ == "__main__":
    main()
