# SPDX-License-Identifier: Apache-2.0
"""The models of keras.applications against Keras itself, as lab/fixtures/keras_applications.py compares them: weights through a
.weights.h5 file that Keras wrote, predictions, losses, and what a step did to each variable.

Needs Python with Keras, TensorFlow and JAX (keras_python.py says where it is looked for); without it, everything is skipped.
KERAS_MODELS=NAME,NAME compares these models, which may be others, or files of model JSON.
"""
import os
import subprocess
import sys

from keras_python import keras_python
from support import KERAS_FILES, LOCKSTEP, ProgramTest, main

SCRIPT = os.path.join(os.environ["LOCKSTEP_SOURCE"], "lab", "fixtures", "keras_applications.py")
MODELS = ("ResNet50", "ResNet50V2", "VGG16", "MobileNet", "MobileNetV2", "MobileNetV3Small", "DenseNet121", "Xception", "InceptionV3",
          "InceptionResNetV2", "EfficientNetB0", "EfficientNetV2B0", "NASNetMobile", "ConvNeXtTiny")
MINUTES = 30  # for one model


class RealModels(ProgramTest):
    def compare(self, name):
        done = subprocess.run([PYTHON, SCRIPT, "--lockstep=" + LOCKSTEP, name], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60 * MINUTES)
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)  # 1 where a value is above the bounds that the script states
        row = done.stdout.splitlines()[-1]
        self.assertTrue(row.startswith(f"| {os.path.basename(name)} |") and row.count("|") == 7 and "!" not in row, row)

    def test_the_names_of_the_page_are_those_of_keras(self):
        script = os.path.join(os.environ["LOCKSTEP_SOURCE"], "lab", "pages", "keras_names.py")
        done = subprocess.run([PYTHON, script, "--keras"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_models_are_as_near_to_keras_as_its_backends_to_each_other(self):
        for name in [name for name in os.environ.get("KERAS_MODELS", "").split(",") if name] or MODELS:
            with self.subTest(name):
                self.compare(name)


if __name__ == "__main__":
    PYTHON, missing = keras_python() if KERAS_FILES else (None, "libhdf5 or libzip is not here")
    if missing:
        print(f"SKIP: {', '.join(MODELS)} are not compared with Keras itself: {missing}")
        sys.exit(77)
    main()
