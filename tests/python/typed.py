# SPDX-License-Identifier: Apache-2.0
"""What mypy says of programs, and what an editor completes by jedi. Both come from PyPI into a virtual environment of the build folder
(tests/programs/keras_python.py); where PyPI cannot be reached, everything is skipped, by name."""
import os
import subprocess
import sys

SOURCE = os.environ["LOCKSTEP_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "programs")]

from keras_python import python_with  # noqa: E402
from support import ProgramTest, main  # noqa: E402

RIGHT = """import lockstep
from lockstep import layers, ops


class Scaled(ops.Layer):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def call(self, inputs: ops.Tensor) -> ops.Tensor:
        return ops.relu(inputs * self.factor)


shapes = [layers.ZeroPadding2D(1), layers.ZeroPadding2D(((1, 1), (2, 2))), layers.Cropping2D(1), layers.Reshape((4, 4, 1)), layers.BatchNormalization(axis=[3])]
small = lockstep.Sequential([layers.Input((4,)), layers.Dense(3, "relu", kernel_regularizer="l2"), layers.Conv2D(8, (3, 3), strides=2)], replicas=2)
own = lockstep.Sequential([layers.Input((4,)), Scaled(2.0)])
own.compile("sgd", loss=lambda y_true, y_pred: ops.square(y_true - y_pred))
model = lockstep.Model("cnn", strategy="ring", replicas=2, precision="float32")
model.compile("adam", loss="mean_squared_error", loss_scale="none")
history = model.fit("fashion-mnist", epochs=3, microbatches=2, steps=5)
losses: list[float] = history.history["loss"]
version: str = lockstep.__version__
passed: bool = lockstep.verify("ring", world=[2, 3], ranks_per_host=2)["passed"]
print(lockstep.compare(model, "fashion-mnist", strategies=["ring"], speed_steps=0, insecure=True))
strategy = model.strategy
replicas: int = strategy.num_replicas_in_sync
"""
# A line behind RIGHT, and what mypy says of it.
WRONG = (('lockstep.Model("cnn", replicaz=2)', 'Unexpected keyword argument "replicaz" for "Model"; did you mean "replicas"?'),
         ('layers.Dense(10, activaton="relu")', 'Unexpected keyword argument "activaton" for "Dense"; did you mean "activation"?'),
         ('ops.relo', 'Module has no attribute "relo"'),
         ('Scaled(factr=2)', 'Unexpected keyword argument "factr" for "Scaled"; did you mean "factor"?'),
         ('layers.Danse(10)', 'Module has no attribute "Danse"; maybe "Dense"?'),
         ('model.fit("fashion-mnist", epoch=3)', 'Unexpected keyword argument "epoch" for "fit" of "Model"; did you mean "epochs"?'),
         ('model.fit("fashion-mnist", batch=3)', 'Unexpected keyword argument "batch" for "fit" of "Model"'),
         ('model.compile("adam", loss_skale="none")', 'Unexpected keyword argument "loss_skale" for "compile" of "Model"; did you mean "loss_scale"?'),
         ('layers.Dense("10")', 'Argument 1 to "Dense" has incompatible type "str"; expected "int"'),
         ('layers.Dense()', 'Missing positional argument "units" in call to "Dense"'),
         ('lockstep.compare(model, "fashion-mnist", step=3)', 'Unexpected keyword argument "step" for "compare"; did you mean "steps"?'),
         ('lockstep.verify("ring", worlds=3)', 'Unexpected keyword argument "worlds" for "verify"; did you mean "world"?'),
         ('strategy.reduces', '"Strategy" has no attribute "reduces"; maybe "reduce"?'),
         ('lockstep.Modle("cnn")', 'Module has no attribute "Modle"; maybe "Model"?'),
         ('lockstep.Sequential([], replicaz=2)', 'Unexpected keyword argument "replicaz" for "Sequential"; did you mean "replicas"?'))
COMPLETED = (("layers.", {"Dense", "Conv2D", "Input", "SeparableConv2D"}), ("layers.Dense(10, acti", {"activation="}),
             ("layers.Conv2D(8, 3, dil", {"dilation_rate="}), ('lockstep.Model("cnn", rep', {"replicas="}), ('lockstep.Model("cnn", prec', {"precision="}),
             ('lockstep.Model("cnn").fit("mnist", micro', {"microbatches="}), ('lockstep.Model("cnn").ev', {"evaluate"}),
             ("lockstep.", {"Model", "Sequential", "compare", "layers", "ops"}), ('lockstep.bench("ring", warm', {"warmup="}), ("from lockstep import ops; ops.", {"relu", "Layer", "logsumexp"}))
COMPLETE = """
import json, sys, jedi
project = jedi.Project(sys.argv[1])
print(json.dumps([[one.name for one in jedi.Script("import lockstep\\nfrom lockstep import layers\\n" + line, project=project).complete()]
                  for line in json.loads(sys.argv[2])]))
"""


class Typed(ProgramTest):
    def said(self, *arguments):
        done = subprocess.run([PYTHON, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder, timeout=600,
                              env=dict(os.environ, MYPYPATH=os.path.join(SOURCE, "python")))
        return done.stdout

    def test_mypy_finds_what_is_misspelled(self):
        with open(self.path("program.py"), "w", encoding="utf-8") as file:
            file.write(RIGHT + "\n".join(line for line, _ in WRONG) + "\n")
        out = self.said("-m", "mypy", "--strict", "program.py")
        errors = [line for line in out.splitlines() if line.startswith("program.py:") and ": error: " in line]
        first = RIGHT.count("\n") + 1
        self.assertEqual(len(errors), len(WRONG), out)
        for number, (line, says) in enumerate(WRONG, first):
            with self.subTest(line):
                self.assertTrue(any(error.startswith(f"program.py:{number}: error: {says}") for error in errors), out)

    def test_jedi_completes_layers_and_arguments(self):
        import json

        out = json.loads(self.said("-c", COMPLETE, os.path.join(SOURCE, "python"), json.dumps([line for line, _ in COMPLETED])))
        for (line, expected), names in zip(COMPLETED, out):
            with self.subTest(line):
                self.assertEqual(expected - set(names), set(), names[:20])


if __name__ == "__main__":
    PYTHON, missing = python_with(("mypy", "jedi", "numpy"), "TYPED")
    if missing:
        print(f"SKIP python/typed: {missing}")
        sys.exit(77)
    main()
