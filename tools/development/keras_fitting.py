#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/fitting/keras.json: what Keras makes of a small model with each optimizer, schedule, loss and metric.

Each case is trained for 20 steps of 8 examples, in order. It keeps the loss of each step, the metrics of each epoch, those of an
evaluation afterwards, and what the trained model predicts for the first examples. Keras 3 with the backend TensorFlow is needed:

    KERAS_BACKEND=tensorflow python tools/development/keras_fitting.py tests/data/fitting/keras.json
"""

import json
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

# In float64, so that what is kept is Keras's arithmetic without its roundings: 1 - 0.999^t alone loses five digits in float32.
# (TensorFlow has its top-k in float32 only.)
def set_type(c):
    name = "float32" if "top_k" in c.get("metrics", "") else "float64"
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)


EXAMPLES, BATCH, EPOCHS, FEATURES, HIDDEN, UNITS = 40, 8, 4, 5, 4, 3
SHOWN = 4  # examples whose predictions are kept

OPTIMIZERS = {
    "sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam, "adamw": keras.optimizers.AdamW,
    "rmsprop": keras.optimizers.RMSprop, "adagrad": keras.optimizers.Adagrad,
    "adadelta": keras.optimizers.Adadelta, "adamax": keras.optimizers.Adamax,
    "nadam": keras.optimizers.Nadam, "lamb": keras.optimizers.Lamb,
}
SCHEDULES = {
    "exponential_decay": keras.optimizers.schedules.ExponentialDecay,
    "inverse_time_decay": keras.optimizers.schedules.InverseTimeDecay,
    "piecewise_constant_decay": keras.optimizers.schedules.PiecewiseConstantDecay,
    "polynomial_decay": keras.optimizers.schedules.PolynomialDecay,
    "cosine_decay": keras.optimizers.schedules.CosineDecay,
    "cosine_decay_restarts": keras.optimizers.schedules.CosineDecayRestarts,
}


def case(optimizer="sgd:learning_rate=0.1", loss="mean_squared_error", **more):
    return dict(optimizer=optimizer, loss=loss, activation=more.pop("activation", "linear"),
                targets=more.pop("targets", "real"), **more)


def optimizer_cases():
    for text in [
            "sgd:learning_rate=0.1", "sgd:learning_rate=0.1,momentum=0.9",
            "sgd:learning_rate=0.1,momentum=0.9,nesterov=true", "sgd:learning_rate=0.1,weight_decay=0.05",
            "sgd:learning_rate=0.05,momentum=0.9,weight_decay=0.05",
            "adam:learning_rate=0.05", "adam:learning_rate=0.05,amsgrad=true,beta_2=0.5",
            "adam:learning_rate=0.05,weight_decay=0.1", "adamw:learning_rate=0.05",
            "adamw:learning_rate=0.05,weight_decay=0.5,exclude_from_weight_decay=bias",
            "rmsprop:learning_rate=0.02", "rmsprop:learning_rate=0.02,momentum=0.5,rho=0.8",
            "rmsprop:learning_rate=0.02,centered=true", "rmsprop:learning_rate=0.02,centered=true,momentum=0.5",
            "adagrad:learning_rate=0.1", "adagrad:learning_rate=0.1,initial_accumulator_value=0.5",
            "adadelta:learning_rate=10", "adamax:learning_rate=0.05", "nadam:learning_rate=0.05",
            "lamb:learning_rate=0.05", "lamb:learning_rate=0.05,weight_decay=0.1",
            "sgd:learning_rate=0.5,clipvalue=0.05", "sgd:learning_rate=0.5,clipnorm=0.1",
            "sgd:learning_rate=0.5,global_clipnorm=0.1", "adam:learning_rate=0.05,global_clipnorm=0.1",
            "lamb:learning_rate=0.05,clipnorm=0.1",
            "adam:learning_rate=0.05,use_ema=true,ema_momentum=0.9",
            "sgd:learning_rate=0.1,momentum=0.5,use_ema=true,ema_momentum=0.8,ema_overwrite_frequency=3"]:
        yield case(text)


def schedule_cases():
    for text in [
            "exponential_decay:initial_learning_rate=0.2,decay_steps=5,decay_rate=0.5",
            "exponential_decay:decay_steps=4,decay_rate=0.5,staircase=true",
            "inverse_time_decay:initial_learning_rate=0.2,decay_steps=3,decay_rate=0.7",
            "piecewise_constant_decay:boundaries=4:9,values=0.2:0.05:0.01",
            "polynomial_decay:initial_learning_rate=0.2,decay_steps=12,end_learning_rate=0.01,power=2",
            "polynomial_decay:initial_learning_rate=0.2,decay_steps=6,cycle=true",
            "cosine_decay:initial_learning_rate=0.2,decay_steps=15,alpha=0.1",
            "cosine_decay:initial_learning_rate=0.01,decay_steps=10,warmup_target=0.2,warmup_steps=5",
            "cosine_decay_restarts:initial_learning_rate=0.2,first_decay_steps=4",
            "cosine_decay_restarts:initial_learning_rate=0.2,first_decay_steps=5,t_mul=1.0,m_mul=0.5,alpha=0.1"]:
        yield case("sgd:learning_rate=0.1", schedule=text)


def loss_cases():
    yield case(loss="sparse_categorical_crossentropy", activation="softmax", targets="labels")
    yield case(loss="sparse_categorical_crossentropy:from_logits=true", targets="labels")
    yield case(loss="categorical_crossentropy", activation="softmax", targets="onehot")
    yield case(loss="categorical_crossentropy:label_smoothing=0.2", activation="softmax", targets="onehot")
    yield case(loss="categorical_crossentropy:from_logits=true", targets="onehot")
    # Not here: categorical_crossentropy of a sigmoid, binary_crossentropy of a softmax. Keras takes what the other function was
    # made of for the logits on TensorFlow, and on no other backend.
    yield case(loss="binary_crossentropy", activation="sigmoid", targets="binary")
    yield case(loss="binary_crossentropy:label_smoothing=0.2,from_logits=true", targets="binary")
    for loss in ["mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "huber",
                 "huber:delta=0.3", "log_cosh", "cosine_similarity"]:
        yield case("sgd:learning_rate=0.001" if "percentage" in loss else "sgd:learning_rate=0.1", loss)
    for loss in ["mean_squared_logarithmic_error", "poisson"]:
        yield case(loss=loss, activation="softplus", targets="positive")
    yield case(loss="kl_divergence", activation="softmax", targets="shares")
    for loss in ["hinge", "squared_hinge"]:
        yield case(loss=loss, targets="signs")
        yield case(loss=loss, targets="binary")
    yield case(loss="categorical_hinge", targets="onehot")


def weight_cases():
    for loss, activation, targets in [("sparse_categorical_crossentropy", "softmax", "labels"),
                                      ("categorical_crossentropy", "softmax", "onehot"),
                                      ("mean_squared_error", "linear", "real"), ("huber", "linear", "real")]:
        yield case(loss=loss, activation=activation, targets=targets, sample_weight=True)
    for loss, targets in [("sparse_categorical_crossentropy", "labels"), ("categorical_crossentropy", "onehot")]:
        yield case(loss=loss, activation="softmax", targets=targets, class_weight="0:0.5,2:3")
    yield case(loss="sparse_categorical_crossentropy", activation="softmax", targets="labels", sample_weight=True,
               metrics="accuracy,sparse_top_k_categorical_accuracy:k=2")


def metric_cases():
    yield case(loss="sparse_categorical_crossentropy", activation="softmax", targets="labels",
               metrics="accuracy,sparse_categorical_accuracy,sparse_top_k_categorical_accuracy:k=2,"
                       "sparse_categorical_crossentropy")
    yield case(loss="categorical_crossentropy", activation="softmax", targets="onehot",
               metrics="acc,categorical_accuracy,top_k_categorical_accuracy:k=2,auc,precision,recall,categorical_crossentropy")
    yield case(loss="binary_crossentropy", activation="sigmoid", targets="binary",
               metrics="accuracy,binary_accuracy:threshold=0.4,auc:num_thresholds=30,precision:thresholds=0.4,"
                       "recall:thresholds=0.4,binary_crossentropy")
    yield case(loss="binary_crossentropy", activation="sigmoid", targets="binary", metrics="auc:curve=PR,num_thresholds=50,mae")
    yield case(metrics="mae,mse,root_mean_squared_error,mape,log_cosh,cosine_similarity")
    yield case(metrics="mean_absolute_error,mean_squared_error,mean_absolute_percentage_error")
    yield case(loss="poisson", activation="softplus", targets="positive", metrics="msle,poisson")
    yield case(loss="hinge", targets="signs", metrics="hinge,squared_hinge")


# ---- Keras ----

def value(text):
    if text in ("true", "false"):
        return text == "true"
    if ":" in text:
        return [float(part) for part in text.split(":")]
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text


def read(text):
    name, _, rest = text.partition(":")
    return name, {k: value(v) for k, v in (o.split("=", 1) for o in rest.split(",") if o)}


def make_optimizer(c):
    name, options = read(c["optimizer"])
    excluded = options.pop("exclude_from_weight_decay", None)
    options = {k: v if isinstance(v, bool) or k == "ema_overwrite_frequency" else float(v) for k, v in options.items()}
    if "schedule" in c:
        schedule, own = read(c["schedule"])
        if schedule == "piecewise_constant_decay":
            own["boundaries"] = [int(b) for b in own["boundaries"]]
        else:
            own.setdefault("initial_learning_rate", options["learning_rate"])
        options["learning_rate"] = SCHEDULES[schedule](**own)
    optimizer = OPTIMIZERS[name](**options)
    if excluded:
        optimizer.exclude_from_weight_decay(var_names=[excluded])
    return optimizer


def make_loss(c):
    name, options = read(c["loss"])
    return keras.losses.get({"class_name": "".join(w.capitalize() for w in name.split("_")), "config": options}) \
        if name not in ("kl_divergence", "log_cosh") else {"kl_divergence": keras.losses.KLDivergence,
                                                           "log_cosh": keras.losses.LogCosh}[name]()


def make_metrics(c):
    out = []
    text = c.get("metrics")
    if not text:
        return None
    parts = []
    for part in text.split(","):
        if "=" in part and ":" not in part.split("=")[0]:
            parts[-1] += "," + part
        else:
            parts.append(part)
    for part in parts:
        name, options = read(part)
        classes = {"auc": keras.metrics.AUC, "precision": keras.metrics.Precision, "recall": keras.metrics.Recall,
                   "binary_accuracy": keras.metrics.BinaryAccuracy,
                   "top_k_categorical_accuracy": keras.metrics.TopKCategoricalAccuracy,
                   "sparse_top_k_categorical_accuracy": keras.metrics.SparseTopKCategoricalAccuracy,
                   "root_mean_squared_error": keras.metrics.RootMeanSquaredError,
                   "cosine_similarity": keras.metrics.CosineSimilarity}
        if name == "mape":
            out.append(keras.metrics.MeanAbsolutePercentageError(name="mape"))
        elif name == "log_cosh":
            out.append(keras.metrics.LogCoshError(name="log_cosh"))
        elif name == "msle":
            out.append(keras.metrics.MeanSquaredLogarithmicError(name="msle"))
        else:
            out.append(classes[name](name=name, **options) if name in classes else name)
    return out


def make_model(c, data):
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(HIDDEN, "tanh", name="hidden"),
                              keras.layers.Dense(UNITS, c["activation"], name="out")])
    model.set_weights([np.array(w, keras.config.floatx()) for w in data["weights"]])
    model.compile(optimizer=make_optimizer(c), loss=make_loss(c), metrics=make_metrics(c))
    return model


def class_weight(c):
    if "class_weight" not in c:
        return None
    return {int(k): float(v) for k, v in (p.split(":") for p in c["class_weight"].split(","))} | {
        i: 1.0 for i in range(UNITS) if f"{i}:" not in "".join(c["class_weight"])}


def run(c, data):
    set_type(c)
    x, y = np.array(data["x"], keras.config.floatx()), np.array(data["targets"][c["targets"]])
    y = y.astype("int32" if c["targets"] == "labels" else keras.config.floatx())
    w = np.array(data["sample_weight"], keras.config.floatx()) if c.get("sample_weight") else None
    losses = []
    model = make_model(c, data)
    for step in range(EPOCHS * EXAMPLES // BATCH):
        at = slice(step * BATCH % EXAMPLES, step * BATCH % EXAMPLES + BATCH)
        model.reset_metrics()
        logs = model.train_on_batch(x[at], y[at], sample_weight=None if w is None else w[at],
                                    class_weight=class_weight(c), return_dict=True)
        losses.append(float(logs["loss"]))
    model = make_model(c, data)
    history = model.fit(x, y, sample_weight=w, class_weight=class_weight(c), batch_size=BATCH, epochs=EPOCHS,
                        shuffle=False, verbose=0).history
    scores = model.evaluate(x, y, sample_weight=w, batch_size=BATCH, verbose=0, return_dict=True)
    predictions = model.predict(x[:SHOWN], verbose=0)
    short = lambda v: float(f"{float(v):.9g}")  # noqa: E731
    return dict(c, losses=[short(v) for v in losses],
                epochs=[{k: short(v[e]) for k, v in history.items()} for e in range(EPOCHS)],
                evaluation={k: short(v) for k, v in scores.items()},
                predictions=[short(v) for v in predictions.reshape(-1)])


def make_data():
    draw = np.random.default_rng(1)
    f = lambda a: np.round(a, 4).tolist()  # noqa: E731
    labels = draw.integers(0, UNITS, EXAMPLES)
    binary = draw.integers(0, 2, (EXAMPLES, UNITS))
    shares = np.round(draw.dirichlet(np.ones(UNITS), EXAMPLES), 3)
    return dict(
        x=f(draw.normal(size=(EXAMPLES, FEATURES))),
        sample_weight=f(draw.uniform(0, 2, EXAMPLES)),
        targets=dict(real=f(draw.normal(size=(EXAMPLES, UNITS))), positive=f(draw.uniform(0.1, 3, (EXAMPLES, UNITS))),
                     labels=labels.tolist(), onehot=np.eye(UNITS)[labels].tolist(), binary=binary.tolist(),
                     signs=(2 * binary - 1).tolist(), shares=shares.tolist()),
        weights=[f(draw.normal(size=s) / 2) for s in [(FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, UNITS), (UNITS,)]])


def main():
    data = make_data()
    cases = []
    for make in (optimizer_cases, schedule_cases, loss_cases, weight_cases, metric_cases):
        for c in make():
            cases.append(run(c, data))
            print(len(cases), c["optimizer"], c.get("schedule", ""), c["loss"], cases[-1]["losses"][-1], flush=True)
    lines = ",\n".join(json.dumps(c) for c in cases)
    with open(sys.argv[1], "w") as file:
        file.write("{" + f'"keras": "{keras.__version__}", "batch": {BATCH}, "epochs": {EPOCHS},\n')
        for key, v in data.items():
            file.write(f'"{key}": {json.dumps(v)},\n')
        file.write(f'"cases": [\n{lines}\n]' + "}\n")


if __name__ == "__main__":
    main()
