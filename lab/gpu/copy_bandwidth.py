# SPDX-License-Identifier: Apache-2.0
"""How fast GPU 0 copies within its own memory: what a collective there is compared with.

copy_bandwidth.py LIBRARY BYTES, where LIBRARY is that of the CUDA runtime. Prints one JSON object. `gb_s` counts bytes that are
read and bytes that are written, as vendors do for a memory's bandwidth. A program of its own, because a process that has used
a GPU keeps memory there until it ends.
"""
import ctypes
import json
import statistics
import sys
import time

ROUNDS, COPIES = 5, 20
DEVICE_TO_DEVICE = 3  # enum cudaMemcpyKind
NON_BLOCKING, WITHOUT_TIMES = 1, 2  # cudaStreamNonBlocking, cudaEventDisableTiming
DEADLINE = 20.0  # seconds for one round
NOT_READY = 600  # cudaErrorNotReady


class Runtime:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise SystemExit("copy_bandwidth: %s answers error %d of the CUDA runtime" % (name, code))

    def memory(self, size):
        place = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(place), ctypes.c_size_t(size))
        return place

    def wait(self, event):
        end = time.monotonic() + DEADLINE
        code = NOT_READY
        while code == NOT_READY and time.monotonic() < end:
            code = self.library.cudaEventQuery(event)
        if code:
            raise SystemExit("copy_bandwidth: %d copies were not done after %.0f s (error %d)" % (COPIES, DEADLINE, code))


def main():
    runtime, size = Runtime(sys.argv[1]), int(sys.argv[2])
    source, target = runtime.memory(size), runtime.memory(size)
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    runtime.call("cudaStreamCreateWithFlags", ctypes.byref(stream), ctypes.c_uint(NON_BLOCKING))
    runtime.call("cudaEventCreateWithFlags", ctypes.byref(event), ctypes.c_uint(WITHOUT_TIMES))
    seconds = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        for _ in range(COPIES):
            runtime.call("cudaMemcpyAsync", target, source, ctypes.c_size_t(size), ctypes.c_int(DEVICE_TO_DEVICE), stream)
        runtime.call("cudaEventRecord", event, stream)
        runtime.wait(event)
        seconds.append((time.perf_counter() - begin) / COPIES)
    rates = [2e-9 * size / value for value in seconds[1:]]  # the first round warms up
    print(json.dumps({"bytes": size, "gb_s": statistics.median(rates), "least": min(rates), "most": max(rates)}))


main()
