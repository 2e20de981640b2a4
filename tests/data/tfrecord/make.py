# SPDX-License-Identifier: Apache-2.0
"""Makes the files of this folder with TensorFlow. tests/datasets/test_tfrecord.c computes the same values.

    python make.py
"""
import pathlib

import tensorflow as tf

FOLDER = pathlib.Path(__file__).parent
EXAMPLES = 7


def floats(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def integers(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def strings(values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def image(example):
    return tf.io.encode_png(tf.constant([[[example * 20 + row * 3 + column] for column in range(5)] for row in range(4)], tf.uint8)).numpy()


def example(i):
    return tf.train.Example(features=tf.train.Features(feature={
        "values": floats([i + 0.25 * k for k in range(6)]),
        "counts": integers([i, -i, i * 1000]),
        "label": integers([i % 3]),
        "score": floats([i / 8]),
        "raw": strings([bytes((i * 10 + k) % 256 for k in range(12))]),
        "image": strings([image(i)]),
        "name": strings([f"example {i}".encode()]),
        "several": strings([b"a", b"b"]),
        "large": integers([1 << 40]),
        "length": floats([0.5] * (1 + i % 2)),
    }))


for name, options in (("plain.tfrecord", ""), ("compressed.tfrecord.gz", "GZIP")):
    with tf.io.TFRecordWriter(str(FOLDER / name), tf.io.TFRecordOptions(compression_type=options)) as writer:
        for i in range(EXAMPLES):
            writer.write(example(i).SerializeToString(deterministic=True))
