# SPDX-License-Identifier: Apache-2.0
"""Steps of device `pjrt` beside those of device `cpu`, on this machine's cores: the built-in cnn and the GPT of the other benchmarks.

usage: pjrt_speed.py --lockstep=BUILD/tools/lockstep --plugin=FILE [--rounds=5] [--steps=20] [--models=cnn,gpt]

In each round each side trains once, one after the other, with the first place in the machine (chrt -f 50) where that is allowed. Printed: the
median step of each, and the ratio in the rounds, median, least and largest. XLA takes all cores; device cpu is given them.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def options_of(model, folder):
    if model == "cnn":
        return ["--model=cnn", "--dataset=synthetic", "--batch=64"]
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="ascii") as file:  # as many characters as the model knows
        file.write("".join(chr(48 + i * i * 31 % 65) if i >= 65 else chr(48 + i) for i in range(60000)))
    return ["--model=" + os.path.join(HERE, "gpt.json"), "--dataset=text:length=128,file=" + text, "--batch=16",
            "--loss=sparse_categorical_crossentropy:from_logits=true"]


def step_seconds(lockstep, device, options, steps, folder):
    report = os.path.join(folder, "report.json")
    command = [lockstep, "train", "--quiet", "--replicas=1", "--validation=off", "--epochs=1000", f"--steps={steps}", "--device=" + device,
               "--report=" + report, *options]
    if subprocess.run(["chrt", "-f", "50", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        command = ["chrt", "-f", "50", *command]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with open(report, encoding="utf-8") as file:
        return json.load(file)["step_seconds"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--models", default="cnn,gpt")
    chosen = parser.parse_args()
    sides = {"cpu": "cpu", "pjrt": "pjrt:plugin=" + chosen.plugin}
    with tempfile.TemporaryDirectory() as folder:
        for model in chosen.models.split(","):
            options = options_of(model, folder)
            seconds = {side: [] for side in sides}
            for _ in range(chosen.rounds):
                for side, device in sides.items():
                    seconds[side].append(step_seconds(os.path.abspath(chosen.lockstep), device, options, chosen.steps, folder))
            ratios = sorted(a / b for a, b in zip(seconds["pjrt"], seconds["cpu"]))
            print(f"{model}: " + ", ".join(f"{side} {statistics.median(times) * 1e3:.2f} ms a step" for side, times in seconds.items())
                  + f"; pjrt takes {statistics.median(ratios):.2f} times as long ({ratios[0]:.2f} to {ratios[-1]:.2f} in {chosen.rounds} rounds)", flush=True)


if __name__ == "__main__":
    main()
