#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether local steps learn as much as data parallel: a GPT of 4 layers, width 128, on tinyshakespeare, 4 replicas.

usage: local_steps.py [--text=FILE] [--steps=2000] [--before=200] [--seeds=3] [--rates=0.0005,0.001,0.002]
                      [--strategy=diloco:steps=50] [--batch=32] [--json=FILE]

A seed and an inner rate train `--before` steps of data parallel; from that checkpoint data parallel and the strategy go on for
`--steps` steps each, and after each epoch (about 220 steps) the tenth of the text that is not trained on is evaluated; the best
evaluation counts. The first seed tries all rates, and each side keeps its best one for the other seeds. Prints both sides, and
the bytes that a rank sends in a step. With the figures above: about an hour on two cores.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDTH, NARROW, HEADS, LENGTH = 256, 128, 4, 128


def narrower(value):
    """The GPT of gpt.json with half of its width."""
    if isinstance(value, list):
        return [narrower(each) for each in value]
    if isinstance(value, dict):
        return {key: narrower(each) for key, each in value.items()}
    return {WIDTH: NARROW, 4 * WIDTH: 4 * NARROW, WIDTH // HEADS: NARROW // HEADS}.get(value, value) if type(value) is int else value


class Training:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        with open(os.path.join(ROOT, "lab", "bench", "gpt.json"), encoding="utf-8") as file:
            model = narrower(json.load(file))
        with open(self.path("gpt.json"), "w", encoding="utf-8") as file:
            json.dump(model, file)
        with open(options.text, encoding="utf-8") as file:
            text = file.read()
        cut = len(text) * 9 // 10
        for name, part in (("train.txt", text[:cut]), ("rest.txt", text[cut:])):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(part)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, seed, rate, strategy, steps, checkpoints, resume):
        report = self.path("report.json")
        command = [self.options.program, "train", "--model=" + self.path("gpt.json"), f"--seed={seed}", "--quiet",
                   f"--dataset=text:file={self.path('train.txt')},length={LENGTH},stride={LENGTH}",
                   f"--validation-dataset=text:file={self.path('rest.txt')},length={LENGTH},stride={LENGTH}",
                   f"--replicas={self.options.replicas}", "--threads=1", f"--batch={self.options.batch}", "--strategy=" + strategy,
                   f"--optimizer=adamw:learning_rate={rate},beta_2=0.99,weight_decay=0.1", "--epochs=1000", f"--steps={steps}",
                   "--checkpoint-dir=" + checkpoints, "--report=" + report] + (["--resume"] if resume else [])
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"local_steps: {' '.join(command)}\n{done.stderr}")
        with open(report, encoding="utf-8") as file:
            return json.load(file)

    def side(self, seed, rate, strategy, begun):
        folder = self.path("going-on")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(begun, folder)
        report = self.run(seed, rate, strategy, self.options.before + self.options.steps, folder, True)
        values = [epoch["val_loss"] for epoch in report["epochs"] if epoch.get("val_loss") is not None]
        return {"best": min(values), "values": values, "bytes": report["communication"]["bytes_per_step_per_rank"],
                "last_losses": sum(report["losses"][-50:]) / len(report["losses"][-50:])}

    def both(self, seed, rate, strategies):
        begun = self.path("begun")
        shutil.rmtree(begun, ignore_errors=True)
        self.run(seed, rate, "mirrored", self.options.before, begun, False)
        for strategy in strategies:
            row = {"seed": seed, "rate": rate, "strategy": strategy, **self.side(seed, rate, strategy, begun)}
            print(f"seed {seed}  rate {rate:g}  {strategy:40}  validation loss {row['best']:.4f}  bytes a step {row['bytes']}", flush=True)
            yield row

    def all(self):
        strategies = ("mirrored", self.options.strategy)
        rows = [row for rate in self.options.rates for row in self.both(0, rate, strategies)]
        kept = {side: min((row for row in rows if row["strategy"] == side), key=lambda row: row["best"])["rate"] for side in strategies}
        for seed in range(1, self.options.seeds):
            for rate in sorted(set(kept.values())):
                rows += self.both(seed, rate, [side for side in strategies if kept[side] == rate])
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "tools", "lockstep"))
    parser.add_argument("--text", default=os.path.join(ROOT, "..", "shared", "data", "tinyshakespeare", "input.txt"))
    for name, default in (("steps", 2000), ("before", 200), ("seeds", 3), ("replicas", 4), ("batch", 32)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--rates", type=lambda text: [float(rate) for rate in text.split(",")], default=[0.0005, 0.001, 0.002])
    parser.add_argument("--strategy", default="diloco:steps=50")
    parser.add_argument("--json", help="where the rows are written, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = Training(options, folder).all()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    means = []
    for strategy in ("mirrored", options.strategy):
        best = [min(row["best"] for row in rows if row["strategy"] == strategy and row["seed"] == seed) for seed in range(options.seeds)]
        means.append(sum(best) / len(best))
        print(f"{strategy:40}  best validation loss {means[-1]:.4f} over {len(best)} seed{'s' if len(best) > 1 else ''}")
    print(f"{options.strategy} / mirrored: {means[1] / means[0]:.4f}")


if __name__ == "__main__":
    main()
