# SPDX-License-Identifier: Apache-2.0
"""MNIST and CIFAR-10 as keras.datasets gives them, from files in place of downloads. `limit`: so many examples at most, of each part."""
import gzip
import os

import numpy


def mnist(folder, limit=None):
    def read(name, header):
        with gzip.open(os.path.join(folder, name)) as file:
            return numpy.frombuffer(file.read(), dtype="uint8", offset=header)

    parts = []
    for name in ("train", "t10k"):
        images, labels = read(f"{name}-images-idx3-ubyte.gz", 16), read(f"{name}-labels-idx1-ubyte.gz", 8)
        parts.append((images.reshape(-1, 28, 28)[:limit], labels[:limit]))
    return tuple(parts)


def cifar10(folder, limit=None):
    """Its first file of training, and the first 1,000 images of its test."""
    parts = []
    for name in ("cifar-10-batches-bin/data_batch_1.bin", "cifar-10-test-first1000/test_batch_first1000.bin"):
        rows = numpy.fromfile(os.path.join(folder, name), dtype="uint8").reshape(-1, 1 + 3 * 32 * 32)[:limit]
        parts.append((rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, :1]))
    return tuple(parts)
