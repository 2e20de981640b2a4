// SPDX-License-Identifier: Apache-2.0
// The public names of Keras 2 and 3. Those that Lockstep supports may be missing here: they are
// looked up elsewhere.
#include "core/base/keras_names.h"

#include "core/base/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

// Written without underscores and in small letters; one space between two names.
static const char *const names[] = {
    [LS_KERAS_LAYER] =
        "activityregularization adaptiveaveragepooling1d adaptiveaveragepooling2d "
        "adaptiveaveragepooling3d adaptivemaxpooling1d adaptivemaxpooling2d "
        "adaptivemaxpooling3d add additiveattention alphadropout attention augmix "
        "autocontrast average averagepooling1d averagepooling3d batchnormalization "
        "bidirectional categoryencoding centercrop concatenate conv1d conv1dtranspose "
        "conv2dtranspose conv3d conv3dtranspose convlstm1d convlstm2d convlstm3d convolution1d "
        "convolution2d convolution3d cropping1d cropping2d cropping3d cudnngru cudnnlstm "
        "cutmix depthwiseconv1d depthwiseconv2d discretization dot einsumdense embedding "
        "equalization flaxlayer functional gaussiandropout gaussiannoise "
        "globalaveragepooling1d globalaveragepooling2d globalaveragepooling3d "
        "globalmaxpooling1d globalmaxpooling2d globalmaxpooling3d groupnormalization "
        "groupqueryattention gru grucell hashedcrossing hashing identity integerlookup "
        "jaxlayer lambda layernormalization locallyconnected1d locallyconnected2d lstm "
        "lstmcell masking maxnumboundingboxes maxpooling1d maxpooling3d maximum melspectrogram "
        "minimum mixup multiheadattention multiply normalization permute pipeline prelu "
        "randaugment randombrightness randomcolordegeneration randomcolorjitter randomcontrast "
        "randomcrop randomelastictransform randomerasing randomflip randomgaussianblur "
        "randomgrayscale randomheight randomhue randominvert randomperspective "
        "randomposterization randomrotation randomsaturation randomsharpness randomshear "
        "randomtranslation randomwidth randomzoom repeatvector rescaling resizing "
        "reversibleembedding rmsnormalization rnn separableconv1d separableconv2d simplernn "
        "simplernncell solarization spatialdropout1d spatialdropout2d spatialdropout3d "
        "spectralnormalization stackedrnncells stftspectrogram stringlookup subtract "
        "syncbatchnormalization textvectorization tfsmlayer thresholdedrelu timedistributed "
        "torchmodulewrapper unitnormalization upsampling1d upsampling2d upsampling3d wrapper "
        "zeropadding1d zeropadding2d zeropadding3d",
    [LS_KERAS_ACTIVATION] =
        "celu gelu glu hardshrink hardsigmoid hardsilu hardswish hardtanh logsigmoid "
        "logsoftmax mish prelu selu silu softshrink sparseplus sparsemax "
        "sparsesigmoid squareplus swish tanhshrink threshold",
    [LS_KERAS_INITIALIZER] =
        "identity identityinitializer orthogonal orthogonalinitializer stft stftinitializer",
    [LS_KERAS_LOSS] =
        "bce binarycrossentropy binaryfocalcrossentropy categoricalcrossentropy "
        "categoricalfocalcrossentropy categoricalgeneralizedcrossentropy categoricalhinge "
        "circle cosinesimilarity ctc dice generalizeddice hinge huber kld kldivergence "
        "kullbackleiblerdivergence logcosh mae mape meanabsoluteerror "
        "meanabsolutepercentageerror meansquaredlogarithmicerror msle poisson squaredhinge "
        "tversky",
    [LS_KERAS_METRIC] =
        "auc bce binaryaccuracy binarycrossentropy binaryiou categoricalaccuracy "
        "categoricalcrossentropy categoricalhinge concordancecorrelation cosinesimilarity "
        "f1score falsenegatives falsepositives fbetascore hinge huber iou kld kldivergence "
        "logcosh logcosherror mae mape mean meanabsoluteerror meanabsolutepercentageerror "
        "meaniou meanmetricwrapper meanrelativeerror meansquarederror "
        "meansquaredlogarithmicerror meantensor mse msle onehotiou onehotmeaniou "
        "pearsoncorrelation poisson precision precisionatrecall r2score recall "
        "recallatprecision rootmeansquarederror sensitivityatspecificity "
        "sparsecategoricalcrossentropy sparsetopkcategoricalaccuracy specificityatsensitivity "
        "squaredhinge sum topkcategoricalaccuracy truenegatives truepositives",
    [LS_KERAS_OPTIMIZER] =
        "adadelta adafactor adagrad adamax adamw ftrl lamb lion lossscaleoptimizer muon nadam "
        "rmsprop schedulefreeadamw",
};

bool ls_keras_has(enum ls_keras_kind kind, const char *name)
{
    for (const char *list = names[kind]; *list; list += *list == ' ') {
        const char *letter = name;
        bool same = true;
        for (; *list && *list != ' '; list++) {
            while (*letter == '_')
                letter++;
            same = same && tolower((unsigned char)*letter) == *list;
            letter += *letter != '\0';
        }
        if (same && *letter == '\0')
            return true;
    }
    return false;
}

// Whether they differ in underscores and the size of letters only, as a class and its function do.
static bool is_same(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '_')
            a++;
        while (*b == '_')
            b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (!*a)
            return true;
    }
}

// The supported name that Keras's class, or its short name, stands for; NULL: none.
static const char *find_meant(const char *name, const char *const *supported)
{
    static const char *const others[][2] = {{"kld", "kl_divergence"},
                                            {"kullback_leibler_divergence", "kl_divergence"},
                                            {"bce", "binary_crossentropy"},
                                            {"log_cosh_error", "log_cosh"}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (is_same(name, others[i][0]))
            name = others[i][1];
    for (; *supported; supported++)
        if (is_same(name, *supported))
            return *supported;
    return NULL;
}

const char *ls_keras_refusal(enum ls_keras_kind kind, const char *name,
                             const char *const *supported, char *text, size_t bytes)
{
    const bool known = ls_keras_has(kind, name);
    const char *nearest = find_meant(name, supported);
    if (!nearest && !known)
        nearest = ls_nearest(name, supported);
    if (nearest) {
        snprintf(text, bytes, "is unknown; did you mean '%s'?", nearest);
        return text;
    }
    size_t used = (size_t)snprintf(
        text, bytes, known ? "is not supported yet; supported:" : "is unknown; supported:");
    for (bool fits = true; *supported && fits && used + 8 < bytes; supported++) {
        fits = used + strlen(*supported) + 8 < bytes;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                 text[used - 1] == ':' ? " " : ", ", fits ? *supported : "...");
    }
    return text;
}

// A separator stands before each capital that starts a word.
void ls_keras_snake_case(const char *class_name, char *out, size_t bytes)
{
    const char *end = out + bytes - 1;
    for (size_t i = 0; class_name[i] && out + 1 < end; i++) {
        const bool capital = isupper((unsigned char)class_name[i]);
        const bool after_small = i > 0 && islower((unsigned char)class_name[i - 1]);
        const bool before_small = i > 0 && islower((unsigned char)class_name[i + 1]);
        if (capital && (after_small || before_small))
            *out++ = '_';
        *out++ = (char)tolower((unsigned char)class_name[i]);
    }
    *out = '\0';
}

const char *ls_keras_model_name(const char *class_name)
{
    return strcmp(class_name, "Sequential") == 0 ? "sequential" : "functional";
}
