// SPDX-License-Identifier: Apache-2.0
// lockstep train: a model, a dataset, a strategy.
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/run_callbacks.h"
#include "tools/run_options.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/model/model.h"
#include "core/model/weights.h"
#include "core/train/model_calls.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to train"},
    {"model", "NAME|FILE", NULL,
     "a built-in model (mlp, cnn, resnet), Keras model JSON, or a .keras file; also mlp-dropout, "
     "cnn-small, linear, and an .h5 file. A .keras or .h5 file brings its weights",
     .first_day = true},
    {"dataset", "NAME[:option=value,...]", NULL,
     "what to learn from, such as fashion-mnist or csv:file=FILE,label=COLUMN; the datasets are "
     "fashion-mnist, mnist:dir=PATH, cifar10:dir=PATH, cifar100:dir=PATH, "
     "images:dir=PATH,resize=HEIGHTxWIDTH (a folder for each class), csv:file=FILE,label=COLUMN, "
     "arrays:x=FILE,y=FILE (.npy or .safetensors), tfrecord:file=FILE,x=FEATURE,y=FEATURE, "
     "text:file=FILE,length=N, synthetic. All have skip=N, limit=N (the first N examples), "
     "validation_split=F (validate on the last part F of the training examples), repeat=N, "
     "cache=memory|FILE, and for training images random_flip=horizontal, random_crop=N, "
     "random_translation=F, random_rotation=F. A plugin by its name or path (docs/own-parts.md). "
     "In a "
     "name, put a backslash before a comma, plus sign or bracket, or put the value in double "
     "quotes; a file that exists takes precedence over a list or pattern",
     .first_day = true},
    {"loss", "NAME[:option=value,...]|OUTPUT=NAME,...", NULL,
     "a loss by its Keras name, such as sparse_categorical_crossentropy, categorical_crossentropy, "
     "binary_crossentropy:label_smoothing=0.1, mean_squared_error, mae, huber:delta=1 "
     "(docs/models.md lists all), or a plugin (docs/own-parts.md); default: the loss in the "
     "model's file (compile_config), else the "
     "one that fits the last layer; with several outputs OUTPUT=NAME for each, or a list"},
    {"loss-weights", "OUTPUT=X,...", NULL,
     "how often the losses of several outputs count in the loss; others count once"},
    {"metrics", "[OUTPUT=]NAME[:option=value],...", NULL,
     "metrics by their Keras names, such as accuracy,sparse_top_k_categorical_accuracy:k=3,auc,"
     "precision,recall,mae, or plugins (docs/own-parts.md), or none; default: those in the model's "
     "file, else accuracy where there "
     "are classes"},
    {"initial-weights", "FILE", NULL,
     "start from these weights: .safetensors, .weights.h5, .keras or .h5; default: those in the "
     "model's file, else Keras's initializers"},

    {NULL, NULL, NULL, "How the replicas work together"},
    RUN_ARGUMENTS,
    {"elastic", "MIN:MAX", NULL,
     "continue when workers are lost, as long as MIN are left, and accept new ones, up to MAX"},
    {"wire", "float32|bfloat16|float16", "float32",
     "number format in which gradients travel between replicas; 16 bits halve "
     "the bytes; they are added in float32, under nccl in 16 bits; on a GPU only under nccl",
     .idle = ARGUMENT_IDLE_ONE_REPLICA | ARGUMENT_IDLE_UNTRAINED},
    {"compress", "FILTER[:option=value,...]", NULL,
     "how gradients travel with fewer bytes, such as int8:block=256, fp8:format=e5m2, "
     "topk:fraction=0.01 or powersgd:rank=2,start=1000; what a step rounds away is added to the "
     "next; under mirrored, "
     "multi-worker-mirrored, sharded, local-sgd, diloco; `lockstep list filters` lists them",
     .idle = ARGUMENT_IDLE_ONE_REPLICA | ARGUMENT_IDLE_UNTRAINED},
    {"topology", "NAME|FILE|sys", NULL,
     "what collectives are told of hosts, network cards and an order of the ranks: a network of "
     "lockstep simulate, or what Linux shows of NUMA nodes and cards; ring:channels=0 and "
     "tree:channels=0 go along it",
     .idle = ARGUMENT_IDLE_ONE_REPLICA | ARGUMENT_IDLE_UNTRAINED},
    {"reproducible", "SHARDS", NULL,
     "the same bits for any number of replicas and workers: each batch in SHARDS logical shards (8 "
     "without a value), whose sums are made in integers; slower (docs/strategies.md)",
     .optional = true},
    {"check-replicas", "N", NULL,
     "compare the replicas' parameters every N steps, which makes all replicas wait for each other "
     "under any strategy; the parameters are always compared at the end",
     .idle = ARGUMENT_IDLE_ONE_REPLICA | ARGUMENT_IDLE_UNTRAINED | ARGUMENT_IDLE_LATE},

    {NULL, NULL, NULL, "How to train"},
    {"epochs", "N", "1", "passes over the training data; 0: trains nothing", .first_day = true},
    {"steps", "N", NULL, "stop after N steps", .idle = ARGUMENT_IDLE_UNTRAINED},
    {"optimizer", "NAME[:option=value,...]", NULL,
     "sgd, adam, adamw, rmsprop, adagrad, adadelta, adamax, nadam or lamb; with Keras's options, "
     "such as adamw:weight_decay=0.01,global_clipnorm=1,use_ema=on; default: the optimizer in the "
     "model's file, else adam:learning_rate=0.001",
     .idle = ARGUMENT_IDLE_UNTRAINED, .first_day = true},
    {"learning-rate-schedule", "NAME[:option=value,...]", NULL,
     "exponential_decay, inverse_time_decay, piecewise_constant_decay, polynomial_decay, "
     "cosine_decay or cosine_decay_restarts, with Keras's options, such as "
     "cosine_decay:decay_steps=1000,alpha=0.1; default: that of the model's file, else none",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"loss-scale", "dynamic|N|none", NULL,
     "multiply the loss by N before backward, so that small gradients do not vanish in 16 bits, "
     "and "
     "skip steps whose gradients are not finite; dynamic: from 32768 on, half after such a step, "
     "twice after 2000 good ones (dynamic:initial_scale=,dynamic_growth_steps=); default: that of "
     "the model's file, else dynamic with float16, none without",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"class-weight", "CLASS:WEIGHT,...", NULL,
     "how much examples of a class count in the loss, such as 0:1.0,1:2.5; others count once",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"lr-scaling", "none|sqrt|linear", "none",
     "multiply the learning rate by 1, sqrt(N) or N for N replicas",
     .idle = ARGUMENT_IDLE_ONE_REPLICA | ARGUMENT_IDLE_UNTRAINED},
    {"microbatches", "N", "1",
     "compute each replica's share in N parts and add their gradients: less memory, the same "
     "result up to rounding",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"accumulate", "N", "1",
     "update once for every N batches: their gradients are added up, then reduced and applied as "
     "the mean over all their examples; a step is such an update: schedules count it and moving "
     "statistics move with it (in Keras with each batch), and what is left at the end of an epoch "
     "makes a smaller one (in Keras it waits)",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"seed", "N", "0", "seed of the initial weights, the order of examples and dropout"},
    {"shuffle", "on|off|N", "on",
     "shuffle the examples anew in each epoch; N: through a buffer of N examples",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"validation", "on|off", "on",
     "compute loss and accuracy after each epoch, on the part that validation_split= sets aside, "
     "else on the test split; arrays, text and other data in one file or folder have none",
     .idle = ARGUMENT_IDLE_UNTRAINED},

    {"validation-dataset", "NAME[:option=value,...]", NULL,
     "validate on this dataset: its part that validation_split= sets aside, else its test split, "
     "or "
     "all of it where it has one split",
     .excludes = "validation=off", .idle = ARGUMENT_IDLE_UNTRAINED},

    {"callback", "NAME[:option=value,...]", NULL,
     "early_stopping, reduce_lr_on_plateau, csv_logger, terminate_on_nan or tensorboard, with "
     "Keras's options, such as early_stopping:monitor=val_loss,patience=3,restore_best_weights=on, "
     "or the path of a shared object; may be given several times",
     .repeats = true},

    {NULL, NULL, NULL, "How to survive an interruption"},
    {"checkpoint-dir", "DIR", NULL,
     "keep checkpoints in this folder; they hold weights, optimizer, callbacks and the progress of "
     "the training",
     .writes = true, .idle = ARGUMENT_IDLE_UNTRAINED, .first_day = true},
    {"checkpoint-steps", "N", NULL, "write one every N steps; default: after each epoch",
     .needs = "checkpoint-dir", .idle = ARGUMENT_IDLE_UNTRAINED | ARGUMENT_IDLE_LATE},
    {"checkpoint-seconds", "S", NULL, "write one whenever S seconds have passed",
     .needs = "checkpoint-dir", .idle = ARGUMENT_IDLE_UNTRAINED},
    {"checkpoint-keep", "N", "3", "keep the newest N", .needs = "checkpoint-dir",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"checkpoint-best", "METRIC[:min|max]", NULL,
     "write one only after an epoch that is the best so far, such as val_accuracy",
     .needs = "checkpoint-dir", .excludes = "checkpoint-steps checkpoint-seconds",
     .idle = ARGUMENT_IDLE_UNTRAINED},
    {"checkpoint-name", "NAME", "checkpoint-{step:08}",
     "their names, which may contain {step}, {epoch} and metrics, such as "
     "{epoch:03}-{val_loss:.2f}",
     .needs = "checkpoint-dir", .idle = ARGUMENT_IDLE_UNTRAINED},
    {"resume", NULL, NULL,
     "continue from the newest good checkpoint of --checkpoint-dir, or begin where there is none; "
     "--epochs and --steps count from the beginning of the training",
     .needs = "checkpoint-dir", .idle = ARGUMENT_IDLE_UNTRAINED},

    {NULL, NULL, NULL, "What comes out"},
    {"tensorboard", "DIR", NULL,
     "write scalars, and histograms of weights and gradients after each epoch, for tensorboard "
     "--logdir=DIR",
     .writes = true, .idle = ARGUMENT_IDLE_UNTRAINED},
    {"save-weights", "FILE", NULL,
     "write the trained weights; FILE.safetensors: named as in Keras; FILE.weights.h5, for Keras's "
     "load_weights; FILE.keras, with the model, for load_model",
     .writes = true, .first_day = true},
    {"report", "FILE", NULL, "write what was measured, as JSON", .writes = true, .first_day = true},
    {"timeline", "FILE", NULL,
     "record what each rank did and when, as a Chrome trace for ui.perfetto.dev or "
     "chrome://tracing; of several processes, that of worker 0",
     .writes = true},
    {"timeline-steps", "FIRST:LAST", NULL,
     "record only these steps; default: all, up to a million spans", .needs = "timeline"},
    {"log-every", "N", NULL, "print a line whenever N steps are done",
     .excludes = "quiet verbose=0", .idle = ARGUMENT_IDLE_UNTRAINED | ARGUMENT_IDLE_LATE},
    OUTPUT_ARGUMENTS,
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "Examples:\n"
    "  lockstep train --model=cnn --dataset=fashion-mnist --replicas=2 --strategy=ring --epochs=2\n"
    "  lockstep train --model=mlp --dataset=mnist:dir=data/mnist "
    "--optimizer=sgd:learning_rate=0.1,momentum=0.9\n"
    "  lockstep train --model=my-model.json --dataset=synthetic:shape=32x32x3,classes=10 "
    "--strategy=hierarchical-copy "
    "--replicas=4\n\n"
    "With the same seed and global batch, a different number of replicas changes the result only "
    "by rounding, except where replicas do not wait for each other (parameter-server, mode=async "
    "or bounded), and where a BatchNormalization takes the statistics of each replica's share. "
    "With "
    "synchronized it takes those of the whole batch; the strategy's collective adds them up, or "
    "direct under a strategy that has none.\n"
    "Ctrl-C, SIGTERM and SIGHUP stop after the current step and still write report and weights; a "
    "second one stops at once.\n";

struct inputs {
    const struct arguments *arguments;
    struct ls_run *run;
    struct ls_model *model;
    struct ls_data *train, *validation;
    struct run_callbacks callbacks; // of --callback and --tensorboard
    const char
        *unvalidated; // dataset that has nothing to validate on; NULL: it has, or nobody asks
};

static enum ls_status read_checkpoints(const struct arguments *arguments,
                                       struct ls_checkpoint_options *out)
{
    uint64_t keep = 0;
    out->folder = arguments_text(arguments, "checkpoint-dir");
    enum ls_status status =
        arguments_count(arguments, "checkpoint-steps", 1, UINT64_C(1) << 48, &out->steps);
    if (!status)
        status = arguments_number(arguments, "checkpoint-seconds", &out->seconds);
    if (!status && arguments_given(arguments, "checkpoint-seconds") && !(out->seconds > 0)) {
        ls_error("usage", "--checkpoint-seconds=%s: expected more than 0",
                 arguments_text(arguments, "checkpoint-seconds"));
        status = LS_USAGE;
    }
    if (!status)
        status = arguments_count(arguments, "checkpoint-keep", 1, 1000000, &keep);
    out->keep = (uint32_t)keep;
    out->best = arguments_text(arguments, "checkpoint-best");
    out->name = arguments_text(arguments, "checkpoint-name");
    out->resume = arguments_given(arguments, "resume");
    return status;
}

// "FIRST:LAST"
static enum ls_status read_timeline(const struct arguments *arguments, struct ls_fit_options *out)
{
    const char *text = arguments_text(arguments, "timeline-steps");
    out->timeline = arguments_text(arguments, "timeline");
    if (!text)
        return LS_OK;
    const char *colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : 0;
    char first_text[24];
    int64_t first = 0, last = 0;
    snprintf(first_text, sizeof(first_text), "%.*s", length < 20 ? (int)length : 20, text);
    if (!colon || length > 20 || !ls_parse_integer(first_text, &first) ||
        !ls_parse_integer(colon + 1, &last) || first < 1 || last < first) {
        ls_error("usage", "--timeline-steps=%s: expected FIRST:LAST, steps from 1, as in 1:100",
                 text);
        return LS_USAGE;
    }
    out->timeline_first = (uint64_t)first;
    out->timeline_last = (uint64_t)last;
    return LS_OK;
}

static enum ls_status read_fit_options(const struct arguments *arguments,
                                       struct ls_fit_options *out)
{
    enum ls_status status = arguments_count(arguments, "epochs", 0, UINT32_MAX, &out->epochs);
    if (!out->epochs && arguments_text(arguments, "epochs"))
        out->epochs = LS_ZERO; // given
    if (!status)
        status = arguments_count(arguments, "steps", 1, UINT64_C(1) << 48, &out->steps);
    if (!status)
        status = arguments_count(arguments, "check-replicas", 1, UINT32_MAX, &out->check_replicas);
    uint64_t microbatches = 1;
    if (!status)
        status = arguments_count(arguments, "microbatches", 1, UINT32_MAX, &microbatches);
    out->microbatches = (uint32_t)microbatches;
    if (!status)
        status = arguments_count(arguments, "log-every", 1, UINT64_C(1) << 48, &out->log_every);
    uint64_t accumulate = 1;
    if (!status)
        status = arguments_count(arguments, "accumulate", 1, UINT32_MAX, &accumulate);
    out->accumulate = (uint32_t)accumulate;
    if (!status)
        status = run_options_batch(arguments, &out->batch, &out->replica_batch);
    out->shuffle = arguments_text(arguments, "shuffle");
    out->class_weight = arguments_text(arguments, "class-weight");
    out->report = arguments_text(arguments, "report");
    if (!status)
        status = read_timeline(arguments, out);
    return status;
}

static enum ls_status open_data(const struct arguments *arguments, struct inputs *inputs)
{
    bool validation = true;
    const char *dataset = arguments_text(arguments, "dataset");
    const char *other = arguments_text(arguments, "validation-dataset");
    enum ls_status status = arguments_switch(arguments, "validation", &validation);
    if (!status)
        status = ls_run_data_open(inputs->run, dataset, "train", &inputs->train);
    if (!status && validation)
        status = ls_run_data_open(inputs->run, other ? other : dataset, "validation",
                                  &inputs->validation);
    if (!status && other && !inputs->validation)
        status = ls_run_data_open(inputs->run, other, "test", &inputs->validation);
    inputs->unvalidated = !status && validation && !inputs->validation ? dataset : NULL;
    return status;
}

static enum ls_status open_model(const struct arguments *arguments, struct inputs *inputs)
{
    const struct ls_compile_options options = {
        .optimizer = arguments_text(arguments, "optimizer"),
        .loss = arguments_text(arguments, "loss"),
        .loss_weights = arguments_text(arguments, "loss-weights"),
        .metrics = arguments_text(arguments, "metrics"),
        .lr_scaling = arguments_text(arguments, "lr-scaling"),
        .learning_rate_schedule = arguments_text(arguments, "learning-rate-schedule"),
        .loss_scale = arguments_text(arguments, "loss-scale"),
    };
    enum ls_status status =
        run_options_open_model(arguments, inputs->run, inputs->train, &inputs->model);
    if (!status)
        status = ls_compile(inputs->model, &options);
    if (!status)
        status = run_options_load_weights(arguments, inputs->model);
    return status;
}

static enum ls_status open_callbacks(const struct arguments *arguments, struct inputs *inputs)
{
    const char *folder = arguments_text(arguments, "tensorboard");
    const enum ls_status status = run_callbacks_open(arguments, inputs->run, &inputs->callbacks);
    if (status || !folder)
        return status;
    char quoted[2 * PATH_MAX + 1], tensorboard[sizeof(quoted) + 80];
    ls_spec_quote(folder, sizeof(quoted), quoted);
    snprintf(tensorboard, sizeof(tensorboard),
             "tensorboard:histogram_freq=1,write_grads=auto,write_steps_per_second=on,log_dir=%s",
             quoted);
    return run_callbacks_add(inputs->run, tensorboard, &inputs->callbacks);
}

// Once nothing is wrong any more: a hint in front of an error would look like its cause.
static enum ls_status say_notes(void *context, const struct ls_fit_state *state)
{
    const struct inputs *inputs = context;
    run_options_warn_idle(inputs->arguments, inputs->run);
    if (state->steps && ls_run_is_chief(inputs->run)) {
        char why[64];
        snprintf(why, sizeof(why), "in a training of %llu step%s", (unsigned long long)state->steps,
                 state->steps == 1 ? "" : "s");
        arguments_warn_idle(inputs->arguments, ARGUMENT_IDLE_LATE, state->steps, why);
        arguments_warn_steps(inputs->arguments, state->steps, state->epochs);
    }
    if (inputs->unvalidated)
        ls_info("train",
                "no validation: '%s' is one split; validation_split=0.1 sets its last "
                "tenth aside for it",
                inputs->unvalidated);
    return LS_OK;
}

static enum ls_status train(const struct arguments *arguments, struct inputs *inputs,
                            struct ls_fit_options *options)
{
    const char *save = arguments_text(arguments, "save-weights");
    interrupt_run(inputs->run);
    options->validation = inputs->validation;
    if (options->epochs == LS_ZERO && ls_run_is_chief(inputs->run))
        arguments_warn_idle(arguments, ARGUMENT_IDLE_UNTRAINED, 0, "with --epochs=0");
    inputs->callbacks.tables[inputs->callbacks.count++] =
        (struct ls_callbacks){.context = inputs, .on_train_begin = say_notes};
    options->callbacks = inputs->callbacks.tables;
    options->callback_count = inputs->callbacks.count;
    enum ls_status status = ls_fit(inputs->model, inputs->train, options);
    // There is none where it waited for others, and had no step to tell of.
    const bool reported =
        options->report && ls_run_is_chief(inputs->run) && access(options->report, F_OK) == 0;
    if (status == LS_INTERRUPTED)
        ls_warn("train", "interrupted: stopped after the current step%s%s",
                reported ? ", the report is in " : "", reported ? options->report : "");
    const bool saves = save && (status == LS_OK || status == LS_INTERRUPTED);
    if (saves && !ls_run_is_chief(inputs->run)) {
        const enum ls_status lent = ls_lend_weights(inputs->model);
        status = lent ? lent : status;
    } else if (saves) {
        const enum ls_status saved = ls_save_weights(inputs->model, save);
        if (!saved)
            ls_info("train", "saved %llu parameters to %s",
                    (unsigned long long)ls_model_parameters(inputs->model), save);
        status = saved ? saved : status;
    }
    return status;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct inputs inputs = {.arguments = arguments};
    struct ls_run_options run_options = {0};
    struct ls_fit_options fit_options = {.command = "train"};
    struct ls_checkpoint_options checkpoints = {0};
    interrupt_catch();
    enum ls_status status = run_options_need(arguments, "model", "cnn");
    if (!status)
        status = run_options_need(arguments, "dataset", "fashion-mnist");
    if (!status)
        status = run_options_read(arguments, &run_options);
    run_options.wire = arguments_text(arguments, "wire");
    run_options.compress = arguments_text(arguments, "compress");
    run_options.topology = arguments_text(arguments, "topology");
    run_options.elastic = arguments_text(arguments, "elastic");
    if (!status)
        status = run_options_reproducible(arguments, &run_options.reproducible);
    if (!status)
        status = arguments_count(arguments, "seed", 0, INT64_MAX, &run_options.seed);
    if (!status)
        status = read_fit_options(arguments, &fit_options);
    if (!status)
        status = read_checkpoints(arguments, &checkpoints);
    fit_options.checkpoints = checkpoints.folder ? &checkpoints : NULL;
    const char *save = arguments_text(arguments, "save-weights");
    if (!status && save)
        status = ls_weights_check_path("--save-weights", save);
    // Plugins meet this program in a child process first, which is best made while there is but one thread.
    if (!status)
        status = ls_run_open(&run_options, &inputs.run);
    if (!status && ls_run_is_server(inputs.run)) {
        interrupt_run(inputs.run);
        status = ls_run_serve(inputs.run);
        interrupt_run(NULL);
        ls_run_close(inputs.run);
        return status;
    }
    if (!status)
        status = open_data(arguments, &inputs);
    if (!status)
        status = open_model(arguments, &inputs);
    if (!status)
        status = open_callbacks(arguments, &inputs);
    if (!status)
        status = train(arguments, &inputs, &fit_options);
    interrupt_run(NULL);
    ls_model_close(inputs.model);
    run_callbacks_close(&inputs.callbacks);
    ls_run_close(inputs.run);
    ls_data_close(inputs.train);
    ls_data_close(inputs.validation);
    return status;
}

const struct command train_command = {
    .name = "train",
    .operands = "",
    .summary = "trains a model under a strategy chosen by name",
    .help = help,
    .arguments = table,
    .run = run,
};
