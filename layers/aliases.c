// SPDX-License-Identifier: Apache-2.0
// Other names of layers.
#include "layers/kinds.h"

#include <string.h>

// Keras exports these classes twice, and writes them by the second name.
static const char *const aliases[][2] = {
    {"AvgPool1D", "AveragePooling1D"},
    {"AvgPool2D", "AveragePooling2D"},
    {"AvgPool3D", "AveragePooling3D"},
    {"Convolution1D", "Conv1D"},
    {"Convolution1DTranspose", "Conv1DTranspose"},
    {"Convolution2D", "Conv2D"},
    {"Convolution2DTranspose", "Conv2DTranspose"},
    {"Convolution3D", "Conv3D"},
    {"Convolution3DTranspose", "Conv3DTranspose"},
    {"GlobalAvgPool1D", "GlobalAveragePooling1D"},
    {"GlobalAvgPool2D", "GlobalAveragePooling2D"},
    {"GlobalAvgPool3D", "GlobalAveragePooling3D"},
    {"GlobalMaxPool1D", "GlobalMaxPooling1D"},
    {"GlobalMaxPool2D", "GlobalMaxPooling2D"},
    {"GlobalMaxPool3D", "GlobalMaxPooling3D"},
    {"MaxPool1D", "MaxPooling1D"},
    {"MaxPool2D", "MaxPooling2D"},
    {"MaxPool3D", "MaxPooling3D"},
    {"SeparableConvolution1D", "SeparableConv1D"},
    {"SeparableConvolution2D", "SeparableConv2D"},
};

const char *ls_layer_class(const char *name)
{
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strcmp(aliases[i][0], name) == 0)
            return aliases[i][1];
    return name;
}
