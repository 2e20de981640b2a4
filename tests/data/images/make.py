# SPDX-License-Identifier: Apache-2.0
"""Makes the images of this folder, and what Keras's image_dataset_from_directory makes of them, with TensorFlow.

    KERAS_BACKEND=tensorflow python make.py
"""
import pathlib

import keras
import numpy as np
import tensorflow as tf

FOLDER = pathlib.Path(__file__).parent
SIZE = (9, 11)


def picture(rows, columns, channels, seed):
    """Smooth, so that JPEG keeps it nearly as it is."""
    y, x, c = np.meshgrid(np.arange(rows), np.arange(columns), np.arange(channels), indexing="ij")
    return np.uint8(np.clip(128 + 100 * np.sin(0.31 * y + 0.6 * c + seed) * np.cos(0.23 * x - 0.4 * c) + seed * 3, 0, 255))


def write(name, data):
    path = FOLDER / "classes" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.numpy())


write("b/colours.png", tf.io.encode_png(picture(13, 17, 3, 1)))
write("b/deep.png", tf.io.encode_png(np.uint16(picture(6, 8, 3, 2)) * 257))
write("a/grey.png", tf.io.encode_png(picture(20, 10, 1, 3)))
write("a/see-through.png", tf.io.encode_png(picture(9, 11, 4, 4)))
write("a/small.jpg", tf.io.encode_jpeg(picture(16, 24, 3, 5), quality=95))
write("c/inside/grey.jpeg", tf.io.encode_jpeg(picture(15, 9, 1, 6), quality=95))
write("c/progressive.jpg", tf.io.encode_jpeg(picture(31, 33, 3, 7), quality=90, progressive=True))



def as_keras(path, image):
    """TensorFlow's default transform for JPEG trades accuracy for speed, and is off by up to nine of 255 here; libjpeg's own default is exact."""
    if path.suffix == ".png":
        return image
    return tf.image.resize(tf.io.decode_jpeg(path.read_bytes(), channels=3, dct_method="INTEGER_ACCURATE"), SIZE)


dataset = keras.utils.image_dataset_from_directory(FOLDER / "classes", image_size=SIZE, batch_size=None, shuffle=False)
with open(FOLDER / "expected.bin", "wb") as file:
    for path, (image, label) in zip(map(pathlib.Path, dataset.file_paths), dataset):
        print(path.relative_to(FOLDER / "classes"), int(label))
        file.write(np.array(as_keras(path, image)).astype("<f4").tobytes())
