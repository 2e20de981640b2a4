# SPDX-License-Identifier: Apache-2.0
"""Layers that are random in training: what they draw does not depend on the number of replicas, the strategy or the device."""

from support import ProgramTest, main, write_json

CLOSE = 1e-5  # float32, added up in another order


def layer(class_name, **config):
    return {"module": "keras.layers", "class_name": class_name, "registered_name": None, "config": config}


class RandomLayers(ProgramTest):
    def test_draw_the_same_for_any_number_of_replicas(self):
        layers = [layer("InputLayer", name="input", batch_shape=[None, 6, 4]), layer("Conv1D", name="c", filters=4, kernel_size=2, activation="selu"),
                  layer("AlphaDropout", name="alpha", rate=0.3), layer("GaussianDropout", name="gaussian", rate=0.2),
                  layer("SpatialDropout1D", name="spatial", rate=0.25), layer("Flatten", name="f"), layer("Dense", name="d", units=2)]
        write_json(self.path("model.json"), {"module": "keras", "class_name": "Sequential", "registered_name": None, "config": {"name": "m", "layers": layers}})
        losses = {}
        for case in (("--replicas=1",), ("--replicas=2", "--strategy=ring"), ("--replicas=3", "--strategy=sharded"),
                     ("--replicas=1", "--device=reference"), ("--replicas=1", "--seed=2")):
            report = self.train("--model=" + self.path("model.json"), "--dataset=synthetic:shape=6x4,outputs=2,classes=0,examples=13",
                                "--loss=mean_squared_error", "--optimizer=sgd:learning_rate=0.1", "--batch=13", "--epochs=3", "--threads=1",
                                "--validation=off", *case)
            losses[case] = [epoch["loss"] for epoch in report["epochs"]]
        first, *others, another = losses.values()
        for case, other in zip(list(losses)[1:], others):
            self.assertLess(max(abs(a - b) for a, b in zip(first, other)), CLOSE, case)
        self.assertGreater(max(abs(a - b) for a, b in zip(first, another)), 1e-4)


if __name__ == "__main__":
    main()
