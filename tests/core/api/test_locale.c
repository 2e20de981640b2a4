// SPDX-License-Identifier: Apache-2.0
// A program that has set a locale with a decimal comma gets what it gets under C, to the letter, and its own functions
// stay in its locale.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <dirent.h>
#include <locale.h>
#include <sys/stat.h>

static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static const char *read_file(const char *name)
{
    static char texts[2][65536];
    static int next;
    char *text = texts[next++ % 2];
    FILE *file = fopen(in_folder(name), "r");
    ck_assert_msg(file != NULL, "%s", name);
    text[fread(text, 1, sizeof(texts[0]) - 1, file)] = '\0';
    fclose(file);
    return text;
}

// False: this machine cannot make one.
static bool make_comma_locale(void)
{
    char command[512];
    static const char *const same[] = {"LC_CTYPE", "LC_COLLATE", "LC_MONETARY", "LC_TIME",
                                       "LC_MESSAGES"};
    snprintf(folder, sizeof(folder), "/tmp/lockstep-locale-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    FILE *file = fopen(in_folder("xx_XX.source"), "w");
    ck_assert_ptr_nonnull(file);
    fputs("comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
          "grouping 3\nEND LC_NUMERIC\n",
          file);
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        fprintf(file, "%s\ncopy \"POSIX\"\nEND %s\n", same[i], same[i]);
    fclose(file);
    snprintf(command, sizeof(command),
             "localedef -c -i %s -f ANSI_X3.4-1968 %s >/dev/null 2>&1; test -d %s",
             in_folder("xx_XX.source"), in_folder("xx_XX"), in_folder("xx_XX"));
    const bool made = system(command) == 0;
    ck_assert_int_eq(setenv("LOCPATH", folder, 1), 0);
    return made;
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

// Whether a number looks as in the locale that the program has set, wherever it is called.
static char point;
static atomic_uint told;

static void tell(void)
{
    char text[16];
    snprintf(text, sizeof(text), "%.1f", 0.5);
    ck_assert_int_eq(text[1], point);
    told++;
}

static enum ls_status own_callback(void *context, const struct ls_fit_state *state)
{
    (void)context, (void)state;
    tell();
    return LS_OK;
}

static enum ls_status save_own(void *context, struct ls_callback_state *out)
{
    (void)context;
    *out = (struct ls_callback_state){.data = &point, .bytes = 1};
    tell();
    return LS_OK;
}

static enum ls_status load_own(void *context, const struct ls_callback_state *state)
{
    (void)context, (void)state;
    tell();
    return LS_OK;
}

static enum ls_status fill(void *context, uint64_t epoch, uint64_t first, uint64_t count,
                           void *const *inputs, void *target, uint64_t *filled)
{
    (void)context, (void)epoch, (void)first, (void)target, (void)filled;
    tell();
    memset(inputs[0], 0, count * 2 * sizeof(float));
    return LS_OK;
}

static const char model_json[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"layers\": [{\"class_name\": \"InputLayer\", "
    "\"config\": {\"batch_shape\": [null, 2]}}, {\"class_name\": \"Dropout\", \"config\": "
    "{\"rate\": 0.125}}, {\"class_name\": \"Dense\", \"config\": {\"units\": 3, "
    "\"kernel_regularizer\": {\"class_name\": \"L2\", \"config\": {\"l2\": 0.0625}}}}]}}";

struct results {
    double losses[64], rates[8];
    size_t loss_count, epoch_count;
    char error[2048], names[512], log[4096], report[65536];
};

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void list_names(const char *in, char *out, size_t bytes)
{
    struct dirent **entries = NULL;
    const int count = scandir(in_folder(in), &entries, NULL, by_name);
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            used += (size_t)snprintf(out + used, bytes - used, "%s\n", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

static enum ls_status own_step(struct ls_replica_context *replica, void *context)
{
    (void)context;
    tell();
    enum ls_status status = ls_context_forward(replica);
    if (!status)
        status = ls_context_minimize(replica);
    tell();
    return status;
}

// All ways on which numbers come in as text and go out as text, in one training of `epochs`.
static void train(const char *checkpoints, uint64_t epochs, struct results *out)
{
    struct ls_run *run = run_of(NULL, 2);
    struct ls_model *model = NULL;
    struct ls_data *data = NULL;
    struct ls_callbacks *plateau = NULL, *logger = NULL;
    char text[256];
    snprintf(text, sizeof(text), "csv:file=%s,label=kind,validation_split=0.25",
             in_folder("d.csv"));
    OK(ls_run_data_open(run, text, "train", &data));
    OK(ls_model_open_json(run, "numbers", model_json, data, &model));
    OK(ls_compile(model, &(struct ls_compile_options){
                             .optimizer = "sgd:learning_rate=0.5,momentum=0.25",
                             .loss = "sparse_categorical_crossentropy:from_logits=true"}));
    OK(ls_callback_open(
        run, "reduce_lr_on_plateau:monitor=loss,factor=0.25,min_delta=1.5,patience=1", &plateau));
    snprintf(text, sizeof(text), "csv_logger:filename=%s", in_folder("log.csv"));
    OK(ls_callback_open(run, text, &logger));
    const struct ls_callbacks own = {.name = "own",
                                     .on_epoch_end = own_callback,
                                     .on_train_batch_end = own_callback,
                                     .save_state = save_own,
                                     .load_state = load_own};
    const struct ls_callbacks callbacks[] = {*plateau, *logger, own};
    const struct ls_checkpoint_options keeps = {
        .folder = in_folder(checkpoints), .name = "{epoch}-{loss:.3f}", .resume = 1, .keep = 9};
    OK(ls_fit(model, data,
              &(struct ls_fit_options){.epochs = epochs,
                                       .batch = 8,
                                       .class_weight = "0:0.5,1:2.5",
                                       .report = in_folder("report.json"),
                                       .callbacks = callbacks,
                                       .callback_count = 3,
                                       .checkpoints = &keeps}));
    const float *losses = ls_fit_losses(model, &out->loss_count);
    const struct ls_epoch *list = ls_fit_epochs(model, &out->epoch_count);
    ck_assert(out->loss_count <= 64 && out->epoch_count <= 8);
    for (size_t i = 0; i < out->loss_count; i++)
        out->losses[i] = (double)losses[i];
    for (size_t i = 0; i < out->epoch_count; i++)
        out->rates[i] = list[i].learning_rate;
    ls_callback_close(plateau);
    ls_callback_close(logger);
    struct ls_distributed *distributed = NULL;
    OK(ls_distribute_dataset(model, data, &(struct ls_distribute_options){.batch = 8},
                             &distributed));
    OK(ls_strategy_run(distributed, own_step, NULL));
    ls_distributed_close(distributed);
    forget_errors();
    ck_assert_int_eq(ls_set_learning_rate(model, -0.75), LS_USAGE);
    snprintf(out->error, sizeof(out->error), "%s", message);
    ls_log_set_writer(NULL, NULL);
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    list_names(checkpoints, out->names, sizeof(out->names));
    snprintf(out->log, sizeof(out->log), "%s", read_file("log.csv"));
    snprintf(out->report, sizeof(out->report), "%s", read_file("report.json"));
}

// Of the report: times differ, so only its rates.
static void expect_rates(const struct results *results)
{
    const char *at = strstr(results->report, "\"epochs\": [");
    ck_assert_ptr_nonnull(at);
    for (size_t i = 0; i < results->epoch_count; i++) {
        char text[64];
        at = strstr(at, "\"learning_rate\": ");
        ck_assert_ptr_nonnull(at);
        at += strlen("\"learning_rate\": ");
        const int length = snprintf(text, sizeof(text), "%g", results->rates[i]);
        ck_assert_msg(strncmp(at, text, (size_t)length) == 0, "%.20s, not %s", at, text);
    }
}

TEST(a_comma_changes_nothing)
{
    static struct results plain, comma, resumed;
    if (!make_comma_locale() || !setlocale(LC_ALL, "xx_XX")) {
        printf("SKIP a comma changes nothing: localedef makes no locale here\n");
        remove_folder();
        return;
    }
    setlocale(LC_ALL, "C");
    char table[2048] = "x,y,kind\n";
    for (int i = 0; i < 40; i++)
        snprintf(table + strlen(table), sizeof(table) - strlen(table), "%.3f,%de-1,%d\n",
                 (double)i / 16, i % 5, i % 3);
    write_file("d.csv", table);
    point = '.';
    train("plain", 3, &plain);
    expect_rates(&plain);
    ck_assert_double_eq(plain.rates[0], 0.5);
    ck_assert_double_eq(plain.rates[2], 0.125); // a factor of 0.25, which a comma would cut to 0
    const unsigned told_plain = told;
    ck_assert_ptr_nonnull(setlocale(LC_ALL, "xx_XX"));
    point = ',';
    told = 0;
    train("comma", 3, &comma);
    ck_assert_uint_eq(told, told_plain);
    train("plain", 4, &resumed); // what was written under C is read here
    ck_assert_ptr_nonnull(setlocale(LC_ALL, "C"));
    expect_rates(&comma);
    ck_assert_mem_eq(plain.losses, comma.losses, sizeof(plain.losses));
    ck_assert_mem_eq(plain.rates, comma.rates, sizeof(plain.rates));
    ck_assert_str_eq(plain.names, comma.names);
    ck_assert_str_eq(plain.log, comma.log);
    ck_assert_str_eq(plain.error, comma.error);
    ck_assert_ptr_nonnull(strstr(comma.error, "-0.75"));
    ck_assert_mem_eq(resumed.losses, plain.losses, plain.loss_count * sizeof(double));
    remove_folder();
}

// A number of the program's own text is read by its generator, on a thread of Lockstep.
TEST(a_generator_stays_in_the_locale_of_the_program)
{
    if (!make_comma_locale() || !setlocale(LC_ALL, "xx_XX")) {
        printf("SKIP a generator stays in the locale: localedef makes no locale here\n");
        remove_folder();
        return;
    }
    point = ',';
    const struct ls_array input = {.dtype = "float32", .ndims = 1, .dims = {2}};
    struct ls_run *run = run_of(NULL, 1);
    struct ls_data *data = NULL;
    struct ls_model *model = NULL;
    float predictions[30];
    OK(ls_data_from_generator(
        &(struct ls_generator){.inputs = &input, .input_count = 1, .examples = 10, .fill = fill},
        &data));
    OK(ls_model_open_json(run, "numbers", model_json, data, &model));
    OK(ls_predict(model, data, 5, predictions));
    ck_assert_uint_ge(told, 2);
    tell();
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
    remove_folder();
}
