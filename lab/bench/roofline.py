# SPDX-License-Identifier: Apache-2.0
"""The least time of a training step: for each kernel of Lockstep's step, the larger of its bytes by the speed at which
memory copies and its operations by the peak of their type, summed.

    roofline.py cnn --batch=1024 --precision=mixed_bfloat16 --copy-gb-s=3000

Kernels are those of a step after fusion: activations belong to what makes their input, an addition to a batch normalization
before it; flattening costs nothing. Each kernel reads and writes its tensors once, batch normalization reads x twice, forward
and backward. A max-pooling keeps a byte for each output, which also says where the derivative of a ReLU is 0. Attention is
one product for queries, keys and values, the two products between them (half of both under a causal mask) without the scores
in memory, and a product behind. Gradients of weights and everything of the optimizer is float32. Not in it: the input's way
to the device, and caches, which may hold all that a small batch writes: a step can be faster than its roofline.
"""
import argparse
import json
import math

import lockstep_side

PEAKS = {"float32": 67.0, "tf32": 494.0, "mixed_bfloat16": 989.0}  # TFLOP/s, dense, of an H100 SXM
ELEMENT = {"float32": 4, "tf32": 4, "mixed_bfloat16": 2}  # bytes of an activation
UPDATE = {"sgd": 3, "momentum": 5, "adam": 7}  # float32 numbers that an update reads and writes, a parameter
CONVOLUTIONS = ("Conv2D", "DepthwiseConv2D")
PRODUCTS = (*CONVOLUTIONS, "Dense")
NORMALIZATIONS = ("BatchNormalization", "LayerNormalization")
POOLINGS = ("MaxPooling2D", "AveragePooling2D")
CLASSES = (*PRODUCTS, *NORMALIZATIONS, *POOLINGS, "GlobalAveragePooling2D", "Add", "ZeroPadding2D", "Embedding")
ACTIVATIONS = ("Activation", "ReLU", "Softmax")
ATTENTION = "attention"  # what MultiHeadAttention does between its projections


class Tensor:
    """`readers`: layers that read it; `writers`: those of them that wrote its gradient by now; `input`: nobody wants that."""

    def __init__(self, shape, maker=None):
        self.shape, self.size, self.maker = tuple(shape), math.prod(shape), maker
        self.activated, self.readers, self.writers = False, 0, 0


class Layer:
    def __init__(self, kind, config, inputs, output):
        self.kind, self.config, self.inputs, self.output = kind, config, inputs, output
        self.name, self.addend, self.parameters = config["name"], None, 0
        self.operations = 0  # of an example, forward
        for tensor in inputs:
            tensor.readers += 1
        channels = inputs[0].shape[-1]
        if kind in PRODUCTS:
            window = math.prod(config["kernel_size"]) if kind in CONVOLUTIONS else 1
            groups = channels if kind == "DepthwiseConv2D" else config.get("groups", 1)
            depth = window * channels // groups  # products in an element of the output
            self.operations = 2 * output.size * depth
            self.parameters = (depth + config.get("use_bias", True)) * output.shape[-1]
        elif kind in NORMALIZATIONS:
            self.parameters = 2 * channels
        elif kind == "Embedding":
            self.parameters = config["input_dim"] * config["output_dim"]
        elif kind == ATTENTION:  # two products, each over all pairs of places, or those that a causal mask leaves
            self.operations = 4 * inputs[0].shape[0] * output.size // (2 if config["causal"] else 1)


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def shape_of(kind, config, inputs):
    shape = inputs[0].shape
    if kind == "Dense":
        return (*shape[:-1], config["units"])
    if kind == "Embedding":
        return (*shape, config["output_dim"])
    if kind == "GlobalAveragePooling2D":
        return shape[-1:]
    if kind == "ZeroPadding2D":
        return (*(size + sum(pair(sides)) for size, sides in zip(shape, pair(config["padding"]))), shape[-1])
    if kind not in CONVOLUTIONS + POOLINGS:
        return shape
    window = config["kernel_size"] = pair(config["kernel_size"] if kind in CONVOLUTIONS else config.get("pool_size", 2))
    strides = pair(config.get("strides") or (1 if kind in CONVOLUTIONS else window))
    lost = [0 if config.get("padding", "valid") == "same" else size - 1 for size in window]
    sides = [-(-(size - less) // stride) for size, less, stride in zip(shape, lost, strides)]
    return (*sides, config["filters"] if kind == "Conv2D" else shape[-1] * config.get("depth_multiplier", 1))


def attention(config, causal, inputs):
    """The layers that a MultiHeadAttention of one input to itself is made of."""
    x, name, inner = inputs[0], config["name"], config["num_heads"] * config["key_dim"]
    if any(tensor is not x for tensor in inputs) or config.get("value_dim") not in (None, config["key_dim"]):
        raise ValueError("layer %s, which is no attention of one input to itself, is not known to the roofline" % name)
    made = []
    for kind, part, width in ("Dense", "query, key, value", 3 * inner), (ATTENTION, "attention", inner), ("Dense", "output", x.shape[-1]):
        given = dict(config, name="%s %s" % (name, part), causal=causal)
        made.append(Layer(kind, given, [made[-1].output if made else x], Tensor((*x.shape[:-1], width), kind)))
    return made


def sources(node):
    """Names of the layers whose outputs are in a layer's `inbound_nodes`."""
    if isinstance(node, dict):
        return [node["config"]["keras_history"][0]] if node.get("class_name") == "__keras_tensor__" else sources(node.get("args", []))
    return [name for part in node for name in sources(part)] if isinstance(node, list) else []


def layers_of(document):
    """Those that have kernels, in order; ValueError for what is not known here."""
    tensors, layers, last = {}, [], None
    for entry in document["config"]["layers"]:
        kind, config = entry["class_name"], dict(entry["config"])
        names = sources(entry.get("inbound_nodes", [])) or [last] * (kind != "InputLayer")
        inputs, last = [tensors[name] for name in names], config["name"]
        if kind == "InputLayer":
            tensors[last] = Tensor((config.get("batch_shape") or config["batch_input_shape"])[1:])
        elif kind == "Flatten":
            tensors[last] = inputs[0]
            inputs[0].shape = (inputs[0].size,)
        elif kind in ACTIVATIONS:
            tensors[last] = inputs[0]
            inputs[0].activated |= kind == "ReLU" or config.get("activation", "softmax") not in ("linear", "softmax")
        elif kind == "MultiHeadAttention":
            causal = any(node.get("kwargs", {}).get("use_causal_mask") for node in entry["inbound_nodes"])
            layers += attention(config, causal, inputs)
            tensors[last] = layers[-1].output
        elif kind in CLASSES:
            tensors[last] = Tensor(shape_of(kind, config, inputs), None if kind == "ZeroPadding2D" and not inputs[0].maker else kind)
            tensors[last].activated = config.get("activation") not in (None, "linear", "softmax")
            layers.append(Layer(kind, config, inputs, tensors[last]))
        else:
            raise ValueError("layer %s is not known to the roofline" % kind)
    return fused(layers)


def fused(layers):
    """Without additions that belong to the batch normalization before them, the later one of two."""
    kept = []
    for layer in layers:
        owner = next((other for other in reversed(kept) if layer.kind == "Add" and other.kind == "BatchNormalization" and not other.addend
                      and other.output in layer.inputs and other.output.readers == 1), None)
        if owner:
            owner.addend = next(tensor for tensor in layer.inputs if tensor is not owner.output)
            owner.output = layer.output
            owner.output.maker = owner.kind
        else:
            kept.append(layer)
    return kept


def gradient(tensor, by_pooling=False):
    """Elements that a kernel moves which writes the gradient of a tensor: the second one adds to the first; the derivative of an
    activation is applied by the first, or where a batch normalization made it, there."""
    tensor.writers += 1
    derived = tensor.activated and tensor.writers == 1 and not by_pooling and tensor.maker != "BatchNormalization"
    return tensor.size * (1 + (tensor.writers > 1) + derived)


def forward(layer, element):
    """(pass, bytes of an example, bytes of a step, operations of an example), one for each kernel."""
    moved = sum(tensor.size for tensor in layer.inputs) + layer.output.size
    if layer.kind == "BatchNormalization":
        size = layer.output.size
        return [("statistics", size * element, 0, 0), ("normalize", (2 + bool(layer.addend)) * size * element, 0, 0)]
    index = layer.output.size if layer.kind == "MaxPooling2D" else 0
    return [("forward", moved * element + index, layer.parameters * element, layer.operations)]


def backward(layer, element):
    size, x, rows = layer.output.size, layer.inputs[0], []
    if layer.kind in PRODUCTS:
        rows.append(("backward weights", (x.size + size) * element, layer.parameters * 4, layer.operations))
        if x.maker:
            rows.append(("backward data", (size + gradient(x)) * element, layer.parameters * element, layer.operations))
    elif layer.kind == "Embedding":
        rows.append(("backward weights", (x.size + size) * element, layer.parameters * 4, 0))
    elif layer.kind == "ZeroPadding2D" and not x.maker:
        pass
    elif layer.kind in ("LayerNormalization", ATTENTION):  # reads x again
        rows.append(("backward", (x.size + size + gradient(x)) * element, 0, 2 * layer.operations))
    elif layer.kind == "BatchNormalization":
        reads = (2 + bool(layer.addend and layer.output.activated)) * size  # x, dy, and y where x does not say where it was 0
        writes = gradient(x) + (gradient(layer.addend) if layer.addend else 0)
        rows += [("backward sums", reads * element, 0, 0), ("backward data", (reads + writes) * element, 0, 0)]
    elif layer.kind == "MaxPooling2D":
        rows.append(("backward", (size + gradient(x, True)) * element + size, 0, 0))
    elif layer.kind == "Add":
        masked = 3 * size if layer.output.activated else 0  # else the gradient is used as it is
        rows += [("backward", masked * element, 0, 0)] * bool(masked)
        for tensor in layer.inputs:  # it is theirs, and what else reads them adds to it
            tensor.writers += 1
    else:
        rows.append(("backward", (size + gradient(x)) * element, 0, 0))
    return rows


def kernels(document, precision="float32", optimizer="adam"):
    """Of one step: {"kernel", "bytes" of an example, "step_bytes" beside them, "operations" of an example}."""
    element, layers = ELEMENT[precision], layers_of(document)
    rows = [(layer.name, *row) for layer in layers for row in forward(layer, element)]
    rows.append(("loss", "forward and backward", 2 * layers[-1].output.size * element, 0, 0))
    rows += [(layer.name, *row) for layer in reversed(layers) for row in backward(layer, element)]
    parameters = sum(layer.parameters for layer in layers)
    halves = element if element < 4 else 0  # the copy of the weights for the next step
    rows.append((optimizer, "update", 0, parameters * (4 * UPDATE[optimizer] + halves), 0))
    return [{"kernel": "%s, %s" % (name, part), "bytes": per_example, "step_bytes": per_step, "operations": operations}
            for name, part, per_example, per_step, operations in rows]


def timed(rows, batch, copy_gb_s, peak_tflops):
    """The same rows with the least seconds of each, and their sum."""
    made = [dict(row, seconds=max((row["bytes"] * batch + row["step_bytes"]) / (copy_gb_s * 1e9),
                                  row["operations"] * batch / (peak_tflops * 1e12))) for row in rows]
    return made, sum(row["seconds"] for row in made)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="name or Keras model JSON")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=PEAKS, default="float32")
    parser.add_argument("--optimizer", choices=UPDATE, default="adam")
    parser.add_argument("--copy-gb-s", type=float, required=True, help="bytes read and written, as copy_bandwidth.py measures them")
    parser.add_argument("--peak-tflops", type=float, help="[that of an H100 SXM: %s]" % PEAKS)
    options = parser.parse_args()
    with open(lockstep_side.model_file(options.model), encoding="utf-8") as file:
        rows = kernels(json.load(file), options.precision, options.optimizer)
    rows, seconds = timed(rows, options.batch, options.copy_gb_s, options.peak_tflops or PEAKS[options.precision])
    for row in rows:
        print("%-40s %10d bytes, %10d operations an example, %8.2f us" % (
            row["kernel"], row["bytes"], row["operations"], row["seconds"] * 1e6))
    print("%.1f us a step" % (seconds * 1e6))


if __name__ == "__main__":
    main()
