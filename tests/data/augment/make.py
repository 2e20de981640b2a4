# SPDX-License-Identifier: Apache-2.0
"""Prints tests/core/data/augmented_by_keras.h: an image as Keras's RandomTranslation and RandomRotation transform it by given amounts.

    KERAS_BACKEND=tensorflow python make.py > ../../core/data/augmented_by_keras.h
"""
import math

import keras
import numpy as np

ROWS, COLUMNS, CHANNELS = 5, 7, 2
IMAGE = np.array([(i * 37 + i * i * 11) % 256 for i in range(ROWS * COLUMNS * CHANNELS)], "float32").reshape(1, ROWS, COLUMNS, CHANNELS)
SHIFTS = [(1.25, -0.5), (-2.0, 3.0), (0.0, 0.75)]
ANGLES = [0.3, -1.9, math.pi / 2]


def shifted(rows, columns):
    layer = keras.layers.RandomTranslation(0.5, 0.5)
    return layer.transform_images(IMAGE, {"translations": np.array([[columns, rows]], "float32"), "input_shape": IMAGE.shape}, training=True)


def rotated(angle):
    part = angle / (2 * math.pi)
    layer = keras.layers.RandomRotation((part, part))  # nothing is left to chance
    return layer(IMAGE, training=True)


def table(name, amounts, images):
    print(f"\nstatic const struct augmented_by_keras {name}[] = {{")
    for amount, image in zip(amounts, images):
        values = [f"{value:.9g}" for value in np.array(image).reshape(-1)]
        values = [value if "." in value or "e" in value else value + ".0" for value in values]
        print(f"    {{{{{', '.join(repr(float(a)) for a in amount)}}},")
        print("     {" + ",\n      ".join(", ".join(v + "f" for v in values[i:i + 7]) for i in range(0, len(values), 7)) + "}},")
    print("};")


print(f"""// SPDX-License-Identifier: Apache-2.0
// An image, value i of which is (37 i + 11 i^2) mod 256, as Keras {keras.__version__} shifts and rotates it. Made by
// tests/data/augment/make.py.
struct augmented_by_keras {{
    double amount[2]; // rows and columns; radians
    float values[{IMAGE.size}];
}};""")
table("shifted", SHIFTS, [shifted(*shift) for shift in SHIFTS])
table("rotated", [(angle,) for angle in ANGLES], [rotated(angle) for angle in ANGLES])
