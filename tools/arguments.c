// SPDX-License-Identifier: Apache-2.0
// Reads GNU long options by a table.
#include "tools/arguments.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <assert.h>
#include <string.h>

static bool is_end(const struct argument *entry)
{
    return !entry->name && !entry->help;
}

static size_t find(const struct argument *table, const char *name, size_t length, bool *found)
{
    size_t i = 0;
    for (; !is_end(&table[i]); i++)
        if (table[i].name && strlen(table[i].name) == length &&
            strncmp(table[i].name, name, length) == 0) {
            *found = true;
            return i;
        }
    *found = false;
    return i;
}

static const struct ls_hint arguments_elsewhere[] = {
    {"lr learning-rate base-lr",
     "it is an option of the optimizer, as --optimizer=adam:learning_rate=0.001", 1},
    {"momentum nesterov",
     "it is an option of the optimizer, as --optimizer=sgd:momentum=0.9,nesterov=on", 1},
    {"weight-decay wd", "it is an option of the optimizer, as --optimizer=adamw:weight_decay=0.01",
     1},
    {"batch-size bs global-batch-size micro-batch-size local-batch-size "
     "per-device-train-batch-size",
     "--batch=N is the batch of all replicas together (as in Keras), --replica-batch=N that of "
     "each (as in PyTorch)",
     1},
    {"gpu-ids gpu-id device-ids visible-devices", "--devices=0,1 takes GPUs by their numbers", 1},
    {"gpus gpu num-gpus n-gpus ngpus",
     "--device=cuda trains on all GPUs of this machine, and --replicas=N on the first N", 1},
    {"cuda use-cuda", "it is --device=cuda", 1},
    {"cpu no-cuda", "it is --device=cpu", 1},
    {"world-size nproc nproc-per-node num-processes np num-replicas workers ranks",
     "--replicas=N is the number of replicas, which are threads of this process; `lockstep "
     "launch`, "
     "mpirun or torchrun start several processes",
     1},
    {"world-size nproc np ranks", "it is --world=N", 1},
    {"world-size nproc nproc-per-node num-processes np processes num-workers ranks",
     "it is --workers=N, or -n N", 1},
    {"nodes nnodes hosts hostfile host",
     "launch starts workers on this machine; on several, mpirun, srun, torchrun or Kubernetes do, "
     "and "
     "--make-secret=FILE makes the secret that the workers share",
     1},
    {"max-restarts restarts", "it is --restart=K", 1},
    {"verbose quiet model dataset strategy replicas replica-batch batch device threads epochs "
     "steps report",
     "options of the command that is started follow it, as in lockstep launch --workers=2 train "
     "...",
     1},
    {"tag-output label-io log-prefix", "it is --prefix=always", 1},
    {"nodes nnodes node-rank rank local-rank master-addr master-port hosts hostfile",
     "workers find their place in the variables of what starts them, such as mpirun, srun or "
     "torchrun (docs/cluster.md)",
     1},
    {"backend dist-backend distribution-strategy collective algorithm algo all-reduce",
     "--strategy=NAME takes the name of a strategy or of a collective, such as ring", 1},
    {"collective algorithm algo",
     "collectives are named without an option, such as lockstep bench ring tree", 1},
    {"num-workers dataloader-workers",
     "one thread prepares the data, and one for each core decodes images; --threads=N are those "
     "that compute",
     1},
    {"augment augmentation data-augmentation random-flip random-crop",
     "augmentation is an option of the dataset, as "
     "--dataset=cifar10:dir=PATH,random_flip=horizontal,random_crop=4",
     1},
    {"validation-split",
     "it is an option of the dataset, as --dataset=csv:file=FILE,label=COLUMN,validation_split=0.1",
     1},
    {"fp16 bf16 amp half mixed-precision",
     "it is --precision=mixed_bfloat16 or --precision=mixed_float16", 1},
    {"fp16-allreduce fp16-compression grad-compression",
     "--wire=bfloat16 sends gradients in 16 bits, and adds them in float32 (under nccl in 16 bits)",
     1},
    {"tf32 allow-tf32", "it is an option of the device: --device=cuda:tf32=on", 1},
    {"gradient-accumulation-steps accumulate-grad-batches", "it is --accumulate=N", 1},
    {"slices", "--microbatches=N computes each replica's batch in N parts, and updates once", 1},
    {"num-epochs max-epochs n-epochs", "it is --epochs=N", 1},
    {"max-steps num-steps iterations iters", "it is --steps=N", 1},
    {"arch net", "it is --model=NAME or --model=FILE.json", 1},
    {"data data-dir data-path", "it is --dataset=NAME, such as fashion-mnist or mnist:dir=PATH", 1},
    {"checkpoint pretrained load-weights weights", "it is --initial-weights=FILE.safetensors", 1},
    {"save save-model output", "it is --save-weights=FILE.safetensors", 1},
    {"ckpt-dir save-dir", "it is --checkpoint-dir=DIR", 1},
    {"timeout", "it is --deadline=SECONDS", 1},
    {"profile profiler trace", "it is --timeline=FILE", 1},
    {NULL, NULL, 0},
};

// Whether `table` has every option that `text` names, so that a hint suits the subcommand.
static bool has_options_of(const struct argument *table, const char *text)
{
    for (const char *dashes = strstr(text, "--"); dashes; dashes = strstr(dashes + 2, "--")) {
        const char *name = dashes + 2;
        bool found;
        find(table, name, strspn(name, "abcdefghijklmnopqrstuvwxyz-"), &found);
        if (!found)
            return false;
    }
    return true;
}

static const char *hint_for(const struct argument *table, const char *name)
{
    const struct ls_hint *hint = ls_hint_find(arguments_elsewhere, 1, name);
    while (hint && !has_options_of(table, hint->text))
        hint = ls_hint_find(hint + 1, 1, name);
    return hint ? hint->text : NULL;
}

static enum ls_status fail_unknown(const struct argument *table, const char *name, size_t length)
{
    const char *names[ARGUMENTS_MAX + 1] = {NULL};
    char given[128], all[2048] = "";
    size_t count = 0, used = 0;
    for (size_t i = 0; !is_end(&table[i]) && count < ARGUMENTS_MAX; i++) {
        if (!table[i].name)
            continue;
        names[count++] = table[i].name;
        if (used < sizeof(all))
            used += (size_t)snprintf(all + used, sizeof(all) - used, "%s--%s", used ? ", " : "",
                                     table[i].name);
    }
    snprintf(given, sizeof(given), "%.*s", (int)(length < 100 ? length : 100), name);
    const char *hint = hint_for(table, given);
    const char *nearest = hint ? NULL : ls_nearest(given, names);
    if (hint)
        ls_error("usage", "unknown option --%s: %s; --help=all lists all", given, hint);
    else if (nearest)
        ls_error("usage", "unknown option --%s; did you mean --%s? --help=all lists all", given,
                 nearest);
    else
        ls_error("usage", "unknown option --%s; available: %s", given, all);
    return LS_USAGE;
}

// Takes the value of an option, which may be the next word; `used` tells whether it was.
static enum ls_status take_value(size_t index, const char *value, const char *next,
                                 struct arguments *out, bool *used)
{
    const struct argument *entry = &out->table[index];
    if (out->values[index] && !entry->repeats) {
        ls_error("usage", "--%s is given twice", entry->name);
        return LS_USAGE;
    }
    if (out->values[index] && out->more_count == ARGUMENTS_MAX) {
        ls_error("usage", "--%s is given more than %d times", entry->name, ARGUMENTS_MAX);
        return LS_USAGE;
    }
    if (!entry->value && value) {
        ls_error("usage", "--%s takes no value", entry->name);
        return LS_USAGE;
    }
    if (entry->value && !value && !entry->optional) {
        if (!next) {
            ls_error("usage", "--%s needs a value: --%s=%s", entry->name, entry->name,
                     entry->value);
            return LS_USAGE;
        }
        value = next;
        *used = true;
    }
    if (out->values[index]) {
        out->more[out->more_count].index = index;
        out->more[out->more_count++].value = value;
    } else {
        out->values[index] = value ? value : "on";
    }
    return LS_OK;
}

// One word that begins with a dash.
static enum ls_status parse_option(const char *word, const char *next, struct arguments *out,
                                   bool *used)
{
    *used = false;
    if (word[1] != '-') {
        size_t index = 0;
        while (!is_end(&out->table[index]) && out->table[index].letter != word[1])
            index++;
        if (!is_end(&out->table[index]))
            return take_value(index, word[2] ? word + 2 : NULL, next, out, used);
        ls_error("usage", "'%s': options begin with two dashes; --help lists them", word);
        return LS_USAGE;
    }
    const char *name = word + 2;
    const size_t length = strcspn(name, "=");
    bool found;
    if (length == 4 && strncmp(name, "help", length) == 0) {
        ls_error("usage", "%s: expected --help, or --help=all for every option", word);
        return LS_USAGE;
    }
    const size_t index = find(out->table, name, length, &found);
    if (!found)
        return fail_unknown(out->table, name, length);
    return take_value(index, name[length] == '=' ? name + length + 1 : NULL, next, out, used);
}

// Whether `value` is the one of a condition; on and off have other spellings.
static bool is_value(const char *value, const char *text, size_t length)
{
    char expected[32];
    bool one, other;
    if (strlen(value) == length && strncmp(value, text, length) == 0)
        return true;
    snprintf(expected, sizeof(expected), "%.*s", (int)length, text);
    return ls_parse_boolean(value, &one) && ls_parse_boolean(expected, &other) && one == other;
}

// Whether a condition of `needs` or `excludes`, which begins at `text`, is true.
static bool is_true(const struct arguments *arguments, const char *text, size_t length)
{
    const size_t letters = strcspn(text, "= ");
    bool found;
    const size_t index = find(arguments->table, text, letters, &found);
    assert(found);
    if (letters >= length)
        return arguments->values[index] != NULL;
    const char *value =
        arguments->values[index] ? arguments->values[index] : arguments->table[index].default_value;
    return value && is_value(value, text + letters + 1, length - letters - 1);
}

// The first true condition of a list; NULL: none is.
static const char *first_true(const struct arguments *arguments, const char *list)
{
    for (; *list; list += strspn(list, " ")) {
        const size_t length = strcspn(list, " ");
        if (is_true(arguments, list, length))
            return list;
        list += length;
    }
    return NULL;
}

// "a b=c" as "--a=A or --b=c", where A is what the option is said to take.
static void print_conditions(const struct arguments *arguments, const char *list, char *out,
                             size_t bytes)
{
    size_t used = 0;
    for (; *list && used < bytes; list += strspn(list, " ")) {
        const size_t length = strcspn(list, " ");
        bool found;
        const size_t index = find(arguments->table, list, strcspn(list, "= "), &found);
        const char *value = memchr(list, '=', length) ? NULL : arguments->table[index].value;
        used += (size_t)snprintf(out + used, bytes - used, "%s--%.*s%s%s", used ? " or " : "",
                                 (int)length, list, value ? "=" : "", value ? value : "");
        list += length;
    }
}

// What repeats the default is no wish that could be without effect.
static bool was_set(const struct arguments *arguments, size_t i)
{
    const char *value = arguments->values[i], *usual = arguments->table[i].default_value;
    return value && !(usual && is_value(value, usual, strlen(usual)));
}

static enum ls_status refuse_idle(const struct arguments *arguments)
{
    for (size_t i = 0; !is_end(&arguments->table[i]); i++) {
        const struct argument *entry = &arguments->table[i];
        if (!was_set(arguments, i))
            continue;
        const char *other = entry->excludes ? first_true(arguments, entry->excludes) : NULL;
        if (other) {
            ls_error("usage", "--%s and --%.*s exclude each other", entry->name,
                     (int)strcspn(other, " "), other);
            return LS_USAGE;
        }
        if (entry->needs && !first_true(arguments, entry->needs)) {
            char needed[256];
            print_conditions(arguments, entry->needs, needed, sizeof(needed));
            ls_error("usage", "--%s without %s has no effect", entry->name, needed);
            return LS_USAGE;
        }
    }
    return LS_OK;
}

static bool is_idle(const struct arguments *arguments, size_t i, uint32_t reason, uint64_t steps)
{
    int64_t number;
    if (!was_set(arguments, i) || !(arguments->table[i].idle & reason))
        return false;
    return reason != ARGUMENT_IDLE_LATE || (ls_parse_integer(arguments->values[i], &number) &&
                                            number > 0 && (uint64_t)number > steps);
}

void arguments_warn_idle(const struct arguments *arguments, uint32_t reason, uint64_t steps,
                         const char *why)
{
    char names[512] = "";
    size_t used = 0;
    for (size_t i = 0; !is_end(&arguments->table[i]) && used < sizeof(names); i++)
        if (is_idle(arguments, i, reason, steps))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s--%s", used ? ", " : "",
                                     arguments->table[i].name);
    if (used)
        ls_warn("usage", "no effect %s: %s", why, names);
}

void arguments_warn_steps(const struct arguments *arguments, uint64_t steps, uint64_t epochs)
{
    uint64_t wanted = 0;
    if (!epochs || steps < epochs || !arguments_given(arguments, "steps") ||
        arguments_count(arguments, "steps", 1, UINT64_C(1) << 48, &wanted) || wanted <= steps)
        return;
    const uint64_t epoch = steps / epochs;
    ls_warn("usage",
            "--steps=%llu is more than the %llu step%s of --epochs=%llu; it needs --epochs=%llu",
            (unsigned long long)wanted, (unsigned long long)steps, steps == 1 ? "" : "s",
            (unsigned long long)epochs, (unsigned long long)((wanted + epoch - 1) / epoch));
}

enum ls_status arguments_parse(const struct argument *table, int argc, char **argv,
                               size_t most_operands, struct arguments *out)
{
    *out = (struct arguments){.table = table};
    bool options = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        const bool is_option = options && word[0] == '-' && word[1];
        if (is_option && strcmp(word, "--") == 0) {
            options = false;
        } else if (is_option && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            out->help = true;
            return LS_OK;
        } else if (is_option && strcmp(word, "--help=all") == 0) {
            out->help = out->help_all = true;
            return LS_OK;
        } else if (is_option) {
            bool used;
            const enum ls_status status =
                parse_option(word, i + 1 < argc ? argv[i + 1] : NULL, out, &used);
            if (status)
                return status;
            i += used;
        } else if (most_operands == ARGUMENTS_REST) {
            out->rest = argv + i;
            return refuse_idle(out);
        } else if (out->operand_count == most_operands || out->operand_count == ARGUMENTS_MAX) {
            ls_error("usage", "unexpected argument '%s'; options begin with two dashes", word);
            return LS_USAGE;
        } else {
            out->operands[out->operand_count++] = word;
        }
    }
    return refuse_idle(out);
}

static size_t index_of(const struct arguments *arguments, const char *name)
{
    bool found;
    const size_t index = find(arguments->table, name, strlen(name), &found);
    assert(found);
    return index;
}

const char *arguments_text(const struct arguments *arguments, const char *name)
{
    const size_t index = index_of(arguments, name);
    return arguments->values[index] ? arguments->values[index]
                                    : arguments->table[index].default_value;
}

const char *arguments_next(const struct arguments *arguments, const char *name, size_t number)
{
    const size_t index = index_of(arguments, name);
    if (number == 0)
        return arguments_text(arguments, name);
    for (size_t i = 0; i < arguments->more_count; i++)
        if (arguments->more[i].index == index && --number == 0)
            return arguments->more[i].value;
    return NULL;
}

bool arguments_given(const struct arguments *arguments, const char *name)
{
    return arguments->values[index_of(arguments, name)] != NULL;
}

enum ls_status arguments_count(const struct arguments *arguments, const char *name, uint64_t least,
                               uint64_t most, uint64_t *out)
{
    const char *text = arguments_text(arguments, name);
    int64_t value;
    if (!text)
        return LS_OK;
    if (!ls_parse_integer(text, &value) || value < 0 || (uint64_t)value < least ||
        (uint64_t)value > most) {
        ls_error("usage", "--%s=%s: expected an integer from %llu to %llu", name, text,
                 (unsigned long long)least, (unsigned long long)most);
        return LS_USAGE;
    }
    *out = (uint64_t)value;
    return LS_OK;
}

enum ls_status arguments_number(const struct arguments *arguments, const char *name, double *out)
{
    const char *text = arguments_text(arguments, name);
    if (text && !ls_parse_number(text, out)) {
        ls_error("usage", "--%s=%s: expected a number", name, text);
        return LS_USAGE;
    }
    return LS_OK;
}

enum ls_status arguments_switch(const struct arguments *arguments, const char *name, bool *out)
{
    const char *text = arguments_text(arguments, name);
    if (text && !ls_parse_boolean(text, out)) {
        ls_error("usage", "--%s=%s: expected on or off", name, text);
        return LS_USAGE;
    }
    return LS_OK;
}

const char *arguments_short_name(const char *text)
{
    const size_t options = strcspn(text, ":");
    size_t begin = options;
    while (begin > 0 && text[begin - 1] != '/')
        begin--;
    return text + begin;
}
