#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the files of tests/data/npy with NumPy.

usage: make_npy_fixtures.py FOLDER
"""
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
values = np.array([[0, 1, 2], [250, 4, 5]])
for name in ("bool", "uint8", "int32", "int64", "float32", "float64"):
    np.save(folder / f"{name}.npy", values.astype(name))
np.save(folder / "fortran.npy", np.asfortranarray(values.astype("float32")))
np.save(folder / "big-endian.npy", values.astype(">f4"))
np.save(folder / "complex.npy", values.astype("complex64"))
np.save(folder / "records.npy", np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
np.save(folder / "one-dimension.npy", np.arange(5, dtype="int64"))
np.save(folder / "no-dimension.npy", np.float32(7))
with open(folder / "version-2.npy", "wb") as file:
    np.lib.format.write_array(file, values.astype("int32"), version=(2, 0))
