# SPDX-License-Identifier: Apache-2.0
"""Makes docs/keras-names.md: every layer and metric that Keras exports, with what Lockstep makes of it. What is supported is read from
layers/*.c and core/model/metrics.c, why a layer is refused from layers/model_build.c, which says the same when a model has it.

usage: keras_names.py            writes the page
       keras_names.py --check    says whether it is what the sources say; a test
       keras_names.py --keras    says whether the names are those of the Keras that this Python has
"""
import os
import re
import sys

import python_stubs
import reference

SELF = "lab/pages/keras_names.py"
PAGE = os.path.join(reference.ROOT, "docs", "keras-names.md")
LAYERS = """Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D AdaptiveMaxPooling1D
AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AdditiveAttention AlphaDropout Attention AugMix AutoContrast Average AveragePooling1D
AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BatchNormalization Bidirectional CategoryEncoding CenterCrop Concatenate
ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D
ConvLSTM3D Convolution1D Convolution1DTranspose Convolution2D Convolution2DTranspose Convolution3D Convolution3DTranspose Cropping1D
Cropping2D Cropping3D CutMix Dense DepthwiseConv1D DepthwiseConv2D Discretization Dot Dropout ELU EinsumDense Embedding Equalization
Flatten FlaxLayer GRU GRUCell GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D GlobalMaxPooling1D GlobalMaxPooling2D
GlobalMaxPooling3D GroupNormalization GroupQueryAttention HashedCrossing Hashing Identity Input InputLayer InputSpec IntegerLookup JaxLayer
LSTM LSTMCell Lambda Layer LayerNormalization LeakyReLU Masking MaxNumBoundingBoxes MaxPool1D MaxPool2D MaxPool3D MaxPooling1D
MaxPooling2D MaxPooling3D Maximum MelSpectrogram Minimum MixUp MultiHeadAttention Multiply Normalization PReLU Permute Pipeline
RMSNormalization RNN RandAugment RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop
RandomElasticTransform RandomErasing RandomFlip RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective
RandomPosterization RandomRotation RandomSaturation RandomSharpness RandomShear RandomTranslation RandomZoom ReLU RepeatVector Rescaling
Reshape Resizing ReversibleEmbedding STFTSpectrogram SeparableConv1D SeparableConv2D SeparableConvolution1D SeparableConvolution2D
SimpleRNN SimpleRNNCell Softmax Solarization SpatialDropout1D SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells
StringLookup Subtract TFSMLayer TextVectorization TimeDistributed TorchModuleWrapper UnitNormalization UpSampling1D UpSampling2D
UpSampling3D Wrapper ZeroPadding1D ZeroPadding2D ZeroPadding3D""".split()
METRICS = """AUC Accuracy BinaryAccuracy BinaryCrossentropy BinaryIoU CategoricalAccuracy CategoricalCrossentropy CategoricalHinge
ConcordanceCorrelation CosineSimilarity F1Score FBetaScore FalseNegatives FalsePositives Hinge IoU KLDivergence LogCoshError Mean
MeanAbsoluteError MeanAbsolutePercentageError MeanIoU MeanMetricWrapper MeanSquaredError MeanSquaredLogarithmicError Metric OneHotIoU
OneHotMeanIoU PearsonCorrelation Poisson Precision PrecisionAtRecall R2Score Recall RecallAtPrecision RootMeanSquaredError
SensitivityAtSpecificity SparseCategoricalAccuracy SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy SpecificityAtSensitivity
SquaredHinge Sum TopKCategoricalAccuracy TrueNegatives TruePositives""".split()
# Parts of other layers, and bases of one's own.
OTHERWISE = {"GRUCell": "inside `RNN`", "LSTMCell": "inside `RNN`", "SimpleRNNCell": "inside `RNN`", "StackedRNNCells": "inside `RNN`",
             "Input": "in Python", "InputSpec": "not needed: options are checked when a model is made",
             "Layer": "a layer of your own is [a plugin, or a class in Python](own-parts.md)"}
OWN_METRICS = {"Mean": "a metric of your own", "Sum": "a metric of your own", "Metric": "a metric of your own", "MeanMetricWrapper": "a metric of your own",
               "Accuracy": "compares outputs and targets as they are; name `accuracy` goes by their shapes"}
RENAMED = {"FBetaScore": "fbeta_score", "LogCoshError": "log_cosh"}
HEAD = f"""# Names of Keras

<!-- Made by {SELF} of the sources, in which changes are made. -->

What Keras 3 exports, and what Lockstep makes of it. Options of layers are in [models.md](models.md#layers).
"""


def read(*path):
    with open(os.path.join(reference.ROOT, *path), encoding="utf-8") as file:
        return file.read()


def snake(name):
    """As ls_keras_snake_case."""
    return re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()


def advice():
    """What layers/model_build.c says of a class that is refused, by how its name begins."""
    text = read("layers", "model_build.c")
    macros = dict(re.findall(r'#define (\w+)\s*(?:\\\n\s*)?((?:"[^"\n]*"\s*(?:\\\n\s*)?)+)\n', text))
    table = re.search(r"\} instead\[\] = \{(.*?)^\};", text, re.S | re.M)[1]
    rows = re.findall(r'\{"(\w+)",\s*((?:"[^"]*"\s*)+|\w+)\}', table)
    return [(prefix, "".join(re.findall(r'"([^"]*)"', macros.get(said, said)))) for prefix, said in rows]


def rows_of_layers():
    known = {**dict(re.findall(r'RECURRENT\("(\w+)", "([^"]*)"', read("layers", "recurrent.c"))), **python_stubs.Layers().summaries}
    aliases = dict(re.findall(r'\{"(\w+)", "(\w+)"\}', re.search(r"aliases\[\]\[2\] = \{(.*?)^\};", read("layers", "aliases.c"), re.S | re.M)[1]))
    refused = advice()
    for name in LAYERS:
        kind = aliases.get(name, name)
        why = next((said for prefix, said in refused if name.startswith(prefix)), None)
        if kind in known:
            yield name, "yes", known[kind] if kind == name else f"as `{kind}`"
        elif name in OTHERWISE:
            yield name, "yes" if OTHERWISE[name].startswith("in") else "no", OTHERWISE[name]
        else:
            yield name, "no", why or "not yet"


def rows_of_metrics():
    text = read("core", "model", "metrics.c")
    known = set(re.findall(r'(?:METRIC\(|OF_LOSS\(METRIC, )"(\w+)"', text))
    for name in METRICS:
        own = RENAMED.get(name, snake(name))
        if name not in OWN_METRICS and own in known:
            yield name, "yes", f"`{own}`"
        else:
            yield name, "no", OWN_METRICS.get(name, "not yet")


def page():
    out = [HEAD]
    for title, rows in (("Layers", list(rows_of_layers())), ("Metrics", list(rows_of_metrics()))):
        count = sum(answer == "yes" for _, answer, _ in rows)
        out += [f"## {title}", "", f"{count} of {len(rows)}.", "", "| name | | |", "|---|---|---|", *(f"| `{name}` | {answer} | {why} |" for name, answer, why in rows), ""]
    return "\n".join(out)


def compare_with_keras():
    import keras

    wrong = []
    for what, names, module in (("layers", LAYERS, keras.layers), ("metrics", METRICS, keras.metrics)):
        exported = {name for name in dir(module) if isinstance(getattr(module, name), type)} | ({"Input"} if what == "layers" else set())
        wrong += [f"{what}: Keras {keras.__version__} has {name}, the list not" for name in sorted(exported - set(names))]
        wrong += [f"{what}: Keras {keras.__version__} has no {name}" for name in sorted(set(names) - exported)]
    print("\n".join(wrong) or f"{len(LAYERS)} layers and {len(METRICS)} metrics, as Keras {keras.__version__} has them")
    return bool(wrong)


def main():
    if "--keras" in sys.argv:
        return compare_with_keras()
    if "--check" in sys.argv:
        with open(PAGE, encoding="utf-8") as file:
            same = file.read() == page()
        print("as the sources say" if same else f"docs/keras-names.md is not what the sources say: run {SELF}")
        return not same
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
