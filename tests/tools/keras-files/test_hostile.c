// SPDX-License-Identifier: Apache-2.0
// Files that were made to do harm, and damaged ones: one line with the file's name and what is
// wrong, and nothing else.
#include "tests/tools/keras-files/fixtures.h"

#include "tests/support/suite.h"

#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zip.h>

// ---- HDF5 ----

static hid_t create(const char *name)
{
    const hid_t file = H5Fcreate(in_folder(name), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    return file;
}

static hid_t group(hid_t parent, const char *name)
{
    const hid_t made = H5Gcreate2(parent, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(made, 0);
    return made;
}

// layers/dense/vars
static hid_t vars(hid_t file)
{
    const hid_t layers = group(file, "layers"), dense = group(layers, "dense"),
                made = group(dense, "vars");
    H5Gclose(layers);
    H5Gclose(dense);
    return made;
}

static hid_t dataset(hid_t parent, const char *name, hid_t type, int ndims, const hsize_t *dims,
                     hid_t plan)
{
    const hid_t space = ndims < 0 ? H5Screate(H5S_NULL) : H5Screate_simple(ndims, dims, NULL);
    const hid_t made = H5Dcreate2(parent, name, type, space, H5P_DEFAULT, plan, H5P_DEFAULT);
    ck_assert_int_ge(made, 0);
    H5Sclose(space);
    return made;
}

static void expect_refused(const char *name, const char *says)
{
    struct ls_safetensors *file = (void *)folder; // is not touched
    const enum ls_status status = ls_keras_file_read(&keras_program, in_folder(name), &file);
    ck_assert_msg(status == LS_BAD_INPUT, "%s: %d, expected a refusal that says '%s'", name,
                  (int)status, says);
    ck_assert_ptr_eq(file, folder);
    expect_error(name, says);
}

static struct ls_safetensors *expect_read(const char *name)
{
    struct ls_safetensors *file = NULL;
    ck_assert_msg(ls_keras_file_read(&keras_program, in_folder(name), &file) == LS_OK, "%s",
                  captured);
    return file;
}

TEST(a_file_cut_anywhere_is_refused)
{
    static const char *const names[] = {"small.weights.h5", "small.keras", "small.keras-2.h5"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t bytes;
        char *content = unpack(names[i], &bytes);
        for (size_t cut = 8; cut < bytes; cut += bytes / 12) {
            write_file("cut", content, cut);
            expect_refused("cut", ": ");
        }
        write_file("cut", content, bytes - 1);
        expect_refused("cut", ": ");
        free(content);
    }
}

// Wherever a number stands in a file, another takes its place.
static void replace_number(const char *name, uint64_t from, uint64_t to)
{
    static char content[1 << 20];
    FILE *file = fopen(in_folder(name), "rb");
    const size_t bytes = fread(content, 1, sizeof(content), file);
    unsigned replaced = 0;
    fclose(file);
    for (size_t i = 0; i + sizeof(from) <= bytes; i++)
        if (memcmp(content + i, &from, sizeof(from)) == 0) {
            memcpy(content + i, &to, sizeof(to));
            replaced++;
        }
    ck_assert_uint_gt(replaced, 0);
    write_file(name, content, bytes);
}

// More elements than any machine has memory for, of which none is stored.
TEST(declared_sizes_are_checked_before_anything_is_allocated)
{
    const hsize_t huge[1] = {UINT64_C(12345678901)},
                  square[2] = {UINT64_C(1) << 33, UINT64_C(1) << 33}, chunk[1] = {1024},
                  large_chunk[1] = {UINT64_C(1) << 28}, some[1] = {1000};
    hid_t file = create("huge.h5"), parent = vars(file);
    H5Dclose(dataset(parent, "0", H5T_IEEE_F32LE, 1, huge, H5P_DEFAULT));
    H5Gclose(parent);
    H5Fclose(file);
    replace_number("huge.h5", huge[0], UINT64_C(1) << 60); // which the library would not create
    expect_refused("huge.h5", "layers/dense/vars/0 declares more data than the 256 MiB");

    file = create("square.h5"), parent = vars(file);
    const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(chunked, 1, chunk);
    const hid_t two = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(two, 2, (hsize_t[2]){32, 32});
    H5Dclose(dataset(parent, "0", H5T_IEEE_F64LE, 2, square, two));
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("square.h5", "declares more data");

    // Many that are allowed one by one.
    file = create("many.h5"), parent = vars(file);
    for (char name[2] = "0"; name[0] <= '9'; name[0]++)
        H5Dclose(dataset(parent, name, H5T_IEEE_F32LE, 1, (hsize_t[1]){20000000}, chunked));
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("many.h5", "the tensors declare more data than the 256 MiB");

    file = create("chunk.h5"), parent = vars(file);
    H5Pset_chunk(chunked, 1, large_chunk);
    const hid_t growing = H5Screate_simple(1, some, (hsize_t[1]){H5S_UNLIMITED});
    const hid_t made =
        H5Dcreate2(parent, "0", H5T_IEEE_F32LE, growing, H5P_DEFAULT, chunked, H5P_DEFAULT);
    ck_assert_int_ge(made, 0);
    H5Dclose(made);
    H5Sclose(growing);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("chunk.h5", "in chunks of more than");

    file = create("empty.h5"), parent = vars(file);
    H5Dclose(dataset(parent, "0", H5T_IEEE_F32LE, 1, some, H5P_DEFAULT)); // never written
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("empty.h5", "declares 4000 bytes, but 0 are stored");
    H5Pclose(chunked);
    H5Pclose(two);
}

TEST(chunks_and_gzip_are_read)
{
    static float values[64][32];
    for (int i = 0; i < 64 * 32; i++)
        values[i / 32][i % 32] = (float)i / 3;
    const hid_t file = create("packed.h5"), parent = vars(file),
                plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plan, 2, (hsize_t[2]){10, 7});
    H5Pset_shuffle(plan);
    H5Pset_deflate(plan, 5);
    H5Pset_fletcher32(plan);
    const hid_t made = dataset(parent, "0", H5T_IEEE_F32BE, 2, (hsize_t[2]){64, 32}, plan);
    ck_assert_int_ge(H5Dwrite(made, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    H5Dclose(made);
    H5Pclose(plan);
    H5Gclose(parent);
    H5Fclose(file);
    struct ls_safetensors *read = expect_read("packed.h5");
    ck_assert_mem_eq(ls_safetensors_get(read, 0)->data, values, sizeof(values));
    ls_safetensors_close(read);
}

TEST(other_filters_are_refused)
{
    const hid_t file = create("filter.h5"), parent = vars(file),
                plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plan, 1, (hsize_t[1]){16});
    H5Pset_scaleoffset(plan, H5Z_SO_FLOAT_DSCALE, 2);
    H5Dclose(dataset(parent, "0", H5T_IEEE_F32LE, 1, (hsize_t[1]){32}, plan));
    H5Pclose(plan);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("filter.h5", "packed by filter 6");
}

TEST(groups_inside_themselves_are_refused)
{
    hid_t file = create("cycle.h5"), parent = vars(file);
    ck_assert_int_ge(H5Lcreate_hard(file, "/", parent, "again", H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("cycle.h5", "layers/dense/vars/again is inside itself");

    // Two ways at each of 40 levels: 2^40 paths, none of them a cycle.
    file = create("paths.h5");
    parent = group(file, "layers");
    for (int i = 0; i < 40; i++) {
        const hid_t next = group(parent, "a");
        ck_assert_int_ge(H5Lcreate_hard(parent, "a", parent, "b", H5P_DEFAULT, H5P_DEFAULT), 0);
        H5Gclose(parent);
        parent = next;
    }
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("paths.h5", "more than 200000 groups");

    file = create("deep.h5");
    parent = group(file, "layers");
    for (int i = 0; i < 1000; i++) {
        const hid_t next = group(parent, "a");
        H5Gclose(parent);
        parent = next;
    }
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("deep.h5", "more than 64 deep");
}

TEST(names_have_a_limit_and_are_shown_without_controls)
{
    static char name[2000];
    memset(name, 'n', sizeof(name) - 1);
    hid_t file = create("name.h5"), parent = vars(file);
    H5Dclose(dataset(parent, name, H5T_IEEE_F32LE, 1, (hsize_t[1]){1}, H5P_DEFAULT));
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("name.h5", "a path of more than 1000 letters");

    file = create("controls.h5"), parent = vars(file);
    H5Dclose(dataset(parent, "\033[31mred\n", H5T_IEEE_F32LE, 1, (hsize_t[1]){1}, H5P_DEFAULT));
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("controls.h5", "layers/dense/vars/?[31mred? declares");

    file = create("utf8.h5"), parent = vars(file);
    const float one = 1;
    const hid_t made = dataset(parent, "\xff\xfe", H5T_IEEE_F32LE, 0, NULL, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(made, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &one), 0);
    H5Dclose(made);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("utf8.h5", "not UTF-8");
}

// Each would have the program open another file.
TEST(links_to_other_places_are_refused)
{
    const char *secret = in_folder("secret");
    write_file("secret", "0123456789abcdef", 16);
    hid_t file = create("external-link.h5"), parent = vars(file);
    H5Lcreate_external("/etc/hostname", "/", parent, "0", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("external-link.h5", "layers/dense/vars/0 is a link to another place");

    file = create("soft-link.h5"), parent = vars(file);
    H5Lcreate_soft("/layers/dense/vars", parent, "0", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("soft-link.h5", "is a link to another place");

    file = create("external-data.h5"), parent = vars(file);
    hid_t plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(plan, secret, 0, 16);
    H5Dclose(dataset(parent, "0", H5T_IEEE_F32LE, 1, (hsize_t[1]){4}, plan));
    H5Pclose(plan);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("external-data.h5", "has its data in other files");

    file = create("virtual.h5"), parent = vars(file);
    plan = H5Pcreate(H5P_DATASET_CREATE);
    const hid_t space = H5Screate_simple(1, (hsize_t[1]){4}, NULL);
    H5Pset_virtual(plan, space, secret, "/x", space);
    H5Dclose(dataset(parent, "0", H5T_IEEE_F32LE, 1, (hsize_t[1]){4}, plan));
    H5Sclose(space);
    H5Pclose(plan);
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("virtual.h5", "is made of other files");
}

static void write_values(hid_t parent, const char *name, hid_t type, hid_t memory,
                         const void *values, hsize_t count)
{
    const hid_t made = dataset(parent, name, type, 1, &count, H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite(made, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    H5Dclose(made);
}

TEST(other_types_are_converted_or_named)
{
    const double wide[3] = {0.1, -2, 1e30};
    const float halves[3] = {1, -0.5f, 65504};
    const int32_t numbers[3] = {1, 2, 3};
    hid_t file = create("types.h5"), parent = vars(file);
    const hid_t half = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_size(half, 2);
    H5Tset_ebias(half, 15);
    write_values(parent, "0", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, wide, 3);
    write_values(parent, "1", half, H5T_NATIVE_FLOAT, halves, 3);
    write_values(parent, "2", H5T_STD_I32BE, H5T_NATIVE_INT, numbers, 3);
    // bfloat16 as Keras writes it: two bytes without a type, and an attribute.
    const hid_t opaque = H5Tcreate(H5T_OPAQUE, 2), text = H5Tcopy(H5T_C_S1),
                scalar = H5Screate(H5S_SCALAR);
    const uint16_t brains[3] = {0x3f80, 0xc000, 0x4000};
    const hid_t made = dataset(parent, "3", opaque, 1, (hsize_t[1]){3}, H5P_DEFAULT);
    H5Dwrite(made, opaque, H5S_ALL, H5S_ALL, H5P_DEFAULT, brains);
    H5Tset_size(text, 8);
    const hid_t attribute = H5Acreate2(made, "dtype", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, text, "bfloat16");
    H5Aclose(attribute);
    H5Dclose(made);
    H5Gclose(parent);
    H5Fclose(file);
    struct ls_safetensors *read = expect_read("types.h5");
    const struct ls_saved_tensor *tensor = ls_safetensors_find(read, "layers/dense/vars/0");
    ck_assert(tensor->data[0] == 0.1f && tensor->data[1] == -2 && tensor->data[2] == 1e30f);
    tensor = ls_safetensors_find(read, "layers/dense/vars/1");
    ck_assert_str_eq(tensor->dtype, "F16");
    ck_assert(tensor->data[0] == 1 && tensor->data[1] == -0.5f && tensor->data[2] == 65504);
    tensor = ls_safetensors_find(read, "layers/dense/vars/2");
    ck_assert_str_eq(tensor->dtype, "I32");
    ck_assert_ptr_null(tensor->data);
    tensor = ls_safetensors_find(read, "layers/dense/vars/3");
    ck_assert_str_eq(tensor->dtype, "BF16");
    ck_assert(tensor->data[0] == 1 && tensor->data[1] == -2 && tensor->data[2] == 2);
    ls_safetensors_close(read);

    const struct {
        const char *name, *says;
        hid_t type;
    } others[] = {
        {"text.h5", "not made of numbers", text},
        {"opaque.h5", "not made of numbers", opaque},
        {"reference.h5", "not made of numbers", H5T_STD_REF_OBJ},
        {"odd.h5", "not made of numbers", H5Tcopy(H5T_STD_I32LE)},
    };
    H5Tset_size(others[3].type, 3);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        file = create(others[i].name), parent = vars(file);
        H5Dclose(dataset(parent, "0", others[i].type, 1, (hsize_t[1]){4}, H5P_DEFAULT));
        H5Gclose(parent);
        H5Fclose(file);
        expect_refused(others[i].name, others[i].says);
    }
    file = create("null.h5"), parent = vars(file);
    H5Dclose(dataset(parent, "0", H5T_IEEE_F32LE, -1, NULL, H5P_DEFAULT));
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("null.h5", "has no data");
    file = create("dims.h5"), parent = vars(file);
    H5Dclose(dataset(parent, "0", H5T_IEEE_F32LE, 9, (hsize_t[9]){1, 1, 1, 1, 1, 1, 1, 1, 1},
                     H5P_DEFAULT));
    H5Gclose(parent);
    H5Fclose(file);
    expect_refused("dims.h5", "9 dimensions; at most 8");
    H5Tclose(others[3].type);
    H5Tclose(opaque);
    H5Tclose(text);
    H5Tclose(half);
    H5Sclose(scalar);
}

// Keras 2: what the attributes name must be in the file.
static void put_list(hid_t object, const char *name, const char *text)
{
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, (hsize_t[1]){1}, NULL);
    H5Tset_size(type, strlen(text) + 1);
    const hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, text);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

TEST(attributes_of_keras_2_are_not_believed)
{
    static const char *const weights[] = {"../../secret", "/other", "missing", "",
                                          "dense/",       "link"};
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        const hid_t file = create("attributes.h5"), layer = group(file, "dense");
        put_list(file, "layer_names", "dense");
        put_list(layer, "weight_names", weights[i]);
        H5Lcreate_external("/etc/hostname", "/", layer, "link", H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(layer);
        H5Fclose(file);
        expect_refused("attributes.h5", "the attribute weight_names names");
    }
    hid_t file = create("layers.h5");
    put_list(file, "layer_names", "none");
    H5Fclose(file);
    expect_refused("layers.h5", "the attribute layer_names names none, which is no group");

    file = create("numbers.h5");
    const hid_t space = H5Screate_simple(1, (hsize_t[1]){3}, NULL);
    H5Aclose(H5Acreate2(file, "layer_names", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
    H5Fclose(file);
    expect_refused("numbers.h5", "the attribute layer_names cannot be read");
}

// ---- ZIP ----

static void put(zip_t *zip, const char *name, const void *data, size_t bytes)
{
    zip_source_t *source = zip_source_buffer(zip, data, bytes, 0);
    ck_assert_int_ge(zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8), 0);
}

static zip_t *archive(const char *name)
{
    int error;
    zip_t *zip = zip_open(in_folder(name), ZIP_CREATE | ZIP_TRUNCATE, &error);
    ck_assert_ptr_nonnull(zip);
    return zip;
}

TEST(zip_bombs_are_refused_by_what_they_declare)
{
    static char zeros[1 << 20];
    zip_t *zip = archive("text.keras");
    char *text = calloc(1, 80 << 20); // 80 MiB of zeros become 80 KB
    put(zip, "config.json", text, 80 << 20);
    ck_assert_int_eq(zip_close(zip), 0);
    expect_refused("text.keras", "config.json declares 80 MiB, more than the 64 MiB");
    free(text);

    zip = archive("weights.keras");
    text = calloc(1, 300 << 20);
    put(zip, "config.json", "{}", 2);
    put(zip, "model.weights.h5", text, 300 << 20);
    ck_assert_int_eq(zip_close(zip), 0);
    free(text);
    struct stat about;
    ck_assert_int_eq(stat(in_folder("weights.keras"), &about), 0);
    ck_assert_int_lt(about.st_size, 1 << 20);
    expect_refused("weights.keras", "model.weights.h5 declares 300 MiB, more than the 256 MiB");

    zip = archive("zeros.keras");
    put(zip, "config.json", zeros, sizeof(zeros));
    put(zip, "model.weights.h5", zeros, sizeof(zeros));
    ck_assert_int_eq(zip_close(zip), 0);
    expect_refused("zeros.keras", "config.json is not a text");
}

// Nothing is unpacked to a path; entries of other names are not looked at.
TEST(names_that_leave_the_folder_are_not_followed)
{
    size_t bytes;
    char *weights = unpack("small.weights.h5", &bytes);
    zip_t *zip = archive("names.keras");
    put(zip, "../evil", "evil", 4);
    put(zip, "/tmp/lockstep-evil", "evil", 4);
    put(zip, "assets/../../evil", "evil", 4);
    put(zip, "config.json", "{}", 2);
    put(zip, "model.weights.h5", weights, bytes);
    ck_assert_int_eq(zip_close(zip), 0);
    struct ls_safetensors *file = expect_read("names.keras");
    ck_assert_uint_eq(ls_safetensors_count(file), 6);
    ls_safetensors_close(file);
    ck_assert(access(in_folder("../evil"), F_OK) && access("/tmp/lockstep-evil", F_OK));
    free(weights);
}

TEST(archives_of_others_are_named)
{
    zip_t *zip = archive("other.npz");
    put(zip, "arr_0.npy", "x", 1);
    ck_assert_int_eq(zip_close(zip), 0);
    expect_refused("other.npz", "is a NumPy archive (.npz), which is not read");

    zip = archive("other.pt");
    put(zip, "other/data.pkl", "x", 1);
    ck_assert_int_eq(zip_close(zip), 0);
    expect_refused("other.pt", "is a PyTorch checkpoint (.pt), which is not read");

    zip = archive("other.zip");
    put(zip, "readme", "x", 1);
    ck_assert_int_eq(zip_close(zip), 0);
    expect_refused("other.zip", "is a ZIP archive without config.json, not a .keras file");

    zip = archive("bare.keras");
    put(zip, "config.json", "{}", 2);
    ck_assert_int_eq(zip_close(zip), 0);
    expect_refused("bare.keras", "is a ZIP archive without model.weights.h5");

    zip = archive("text.keras");
    put(zip, "config.json", "{}", 2);
    put(zip, "model.weights.h5", "not HDF5", 8);
    ck_assert_int_eq(zip_close(zip), 0);
    expect_refused("text.keras", "is not a sound HDF5 file");
}

// Every 97th bit of a file flipped: it is read, or refused in one line; never more, never a hang.
TEST(damaged_files_are_read_or_refused_in_one_line)
{
    static const char *const names[] = {"small.weights.h5", "small.keras", "small.keras-2.h5"};
    unsigned refused = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t bytes;
        char *content = unpack(names[i], &bytes);
        for (size_t bit = 5 + 13 * i; bit < bytes * 8; bit += bytes * 8 / 60) {
            struct ls_safetensors *file = NULL;
            content[bit / 8] ^= (char)(1 << bit % 8);
            write_file("damaged", content, bytes);
            content[bit / 8] ^= (char)(1 << bit % 8);
            const enum ls_status status =
                ls_keras_file_read(&keras_program, in_folder("damaged"), &file);
            ck_assert_msg(status == LS_OK || status == LS_BAD_INPUT, "%d: %s", (int)status,
                          captured);
            ck_assert_uint_eq(captured_errors, status != LS_OK);
            refused += status != LS_OK;
            capture_reset();
            ls_safetensors_close(file);
        }
        free(content);
    }
    ck_assert_uint_gt(refused, 3);
}

TEST_FIXTURE(folder_make, folder_remove);
TEST_SECONDS(120);

int main(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return test_suite_run("tools/keras-files/hostile");
}
