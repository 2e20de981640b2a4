# SPDX-License-Identifier: Apache-2.0
"""A training step of two LSTMs of 256 units over 128 steps, batch 32, beside Keras on TensorFlow and on PyTorch, and PyTorch's own LSTM.

usage: LOCKSTEP_LIBRARY=BUILD/liblockstep.so lstm_step.py --python=VENV/bin/python [--rounds=7] [--steps=4] [--threads=2]

VENV has keras, tensorflow-cpu and torch. Each side is a process that has its model ready; in a round each takes its turn, with the first
place in the machine (chrt -f 50; as root), and the others wait. Printed: median, fastest and slowest step, and the median over Lockstep's.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIDES = ("lockstep", "keras-tensorflow", "keras-torch", "torch")
STEPS, FEATURES, UNITS, BATCH, OUTPUTS = 128, 64, 256, 32, 10
RATE = 0.01


def lockstep_side(x, y, threads):
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import lockstep
    from lockstep import layers
    model = lockstep.Sequential([layers.Input((STEPS, FEATURES)), layers.LSTM(UNITS, return_sequences=True), layers.LSTM(UNITS), layers.Dense(OUTPUTS)],
                                device="cpu", threads=threads)
    model.compile(f"sgd:learning_rate={RATE}", "mean_squared_error")
    return lambda: model.train_on_batch(x, y)


def keras_side(backend, x, y, threads):
    os.environ["KERAS_BACKEND"] = backend
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras
    if backend == "tensorflow":
        import tensorflow
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    else:
        import torch
        torch.set_num_threads(threads)
    model = keras.Sequential([keras.Input((STEPS, FEATURES)), keras.layers.LSTM(UNITS, return_sequences=True), keras.layers.LSTM(UNITS),
                              keras.layers.Dense(OUTPUTS)])
    model.compile(keras.optimizers.SGD(RATE), "mean_squared_error")
    return lambda: model.train_on_batch(x, y)


def torch_side(x, y, threads):
    import torch
    torch.set_num_threads(threads)
    lstm, dense = torch.nn.LSTM(FEATURES, UNITS, num_layers=2, batch_first=True), torch.nn.Linear(UNITS, OUTPUTS)
    optimizer = torch.optim.SGD([*lstm.parameters(), *dense.parameters()], RATE)
    x, y = torch.from_numpy(x), torch.from_numpy(y)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(dense(lstm(x)[0][:, -1]), y).backward()
        optimizer.step()
    return step


def side(name, steps, threads):
    """Says "ready", then answers each line with the seconds of a step."""
    import numpy
    random = numpy.random.default_rng(0)
    x, y = random.random((BATCH, STEPS, FEATURES), dtype="float32"), random.random((BATCH, OUTPUTS), dtype="float32")
    make = {"lockstep": lockstep_side, "torch": torch_side}.get(name, lambda *rest: keras_side(name.split("-")[1], *rest))
    step = make(x, y, threads)
    for _ in range(3):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        step()  # the caches are its own again
        start = time.perf_counter()
        for _ in range(steps):
            step()
        print((time.perf_counter() - start) / steps, flush=True)


def first_place(process, first):
    subprocess.run(["chrt", "-a", *(("-f", "-p", "50") if first else ("-o", "-p", "0")), str(process.pid)], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=SIDES)
    arguments = parser.parse_args()
    if arguments.side:
        side(arguments.side, arguments.steps, arguments.threads)
        return
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "CUDA_VISIBLE_DEVICES": ""}
    running = {}
    try:
        for name in SIDES:
            running[name] = subprocess.Popen([arguments.python, os.path.abspath(__file__), "--side=" + name, f"--steps={arguments.steps}",
                                              f"--threads={arguments.threads}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for name, process in running.items():
            if process.stdout.readline().strip() != "ready":
                sys.exit(f"{name} did not become ready")
        seconds = {name: [] for name in SIDES}
        for _ in range(arguments.rounds):
            for name, process in running.items():
                first_place(process, True)
                process.stdin.write("go\n")
                process.stdin.flush()
                seconds[name].append(float(process.stdout.readline()))
                first_place(process, False)
    finally:
        for process in running.values():
            process.stdin.close()
            process.wait()
    own = statistics.median(seconds["lockstep"])
    for name, found in seconds.items():
        print(f"{name:17} {statistics.median(found) * 1e3:7.1f} ms ({min(found) * 1e3:.1f} to {max(found) * 1e3:.1f}), {statistics.median(found) / own:.2f} of Lockstep's")


if __name__ == "__main__":
    main()
