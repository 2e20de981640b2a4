// SPDX-License-Identifier: Apache-2.0
// Files of other programs, read here and by a few lines of Python that know the format from its description: names,
// shapes and every byte agree.
#include "core/formats/safetensors.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#include <inttypes.h>
#include <zlib.h>

#define SKIPPED 77

// One line a tensor, by offset: its name, its dims, the CRC-32 of its bytes.
static const char reader[] =
    "import sys,json,struct,zlib\n"
    "data=open(sys.argv[1],\"rb\").read()\n"
    "n=struct.unpack(\"<Q\",data[:8])[0]\n"
    "header=json.loads(data[8:8+n])\n"
    "header.pop(\"__metadata__\",None)\n"
    "for k,v in sorted(header.items(),key=lambda i:i[1][\"data_offsets\"]):\n"
    "    a,b=v[\"data_offsets\"]\n"
    "    assert v[\"dtype\"]==\"F32\"\n"
    "    print(k,*v[\"shape\"],\"%08x\"%zlib.crc32(data[8+n+a:8+n+b]))\n";

static const char *const files[] = {
    "reference/cnn_sgd.safetensors",
    "reference/mlp_adam.safetensors",
    "keras/sequential-cnn.expected.safetensors",
    "keras/functional-residual.expected.safetensors",
};
#define FILES (int)(sizeof(files) / sizeof(*files))

static const char *path_of(int file)
{
    static char path[512];
    snprintf(path, sizeof(path), FIXTURES "/%s", files[file]);
    return path;
}

static void describe(const struct ls_saved_tensor *tensor, char *line, size_t bytes)
{
    size_t length = (size_t)snprintf(line, bytes, "%s", tensor->name), elements = 1;
    for (uint32_t i = 0; i < tensor->ndims; i++) {
        length += (size_t)snprintf(line + length, bytes - length, " %" PRId64, tensor->dims[i]);
        elements *= (size_t)tensor->dims[i];
    }
    const uLong sum = crc32(0, (const Bytef *)tensor->data, (uInt)(elements * sizeof(float)));
    snprintf(line + length, bytes - length, " %08lx\n", sum);
}

LOOP_TEST(a_reference_file_reads_as_python_reads_it, 0, FILES)
{
    char command[2048], line[512], ours[512];
    snprintf(command, sizeof(command), "python3 -c '%s' '%s'", reader, path_of(_i));
    struct ls_safetensors *file;
    ck_assert_int_eq(ls_safetensors_open(path_of(_i), &file), LS_OK);
    FILE *python = popen(command, "r");
    ck_assert_ptr_nonnull(python);
    size_t count = 0;
    for (; fgets(line, sizeof(line), python); count++) {
        ck_assert_uint_lt(count, ls_safetensors_count(file));
        describe(ls_safetensors_get(file, count), ours, sizeof(ours));
        ck_assert_str_eq(line, ours);
    }
    ck_assert_int_eq(pclose(python), 0);
    ck_assert_uint_eq(count, ls_safetensors_count(file));
    ck_assert_uint_gt(count, 0);
    ls_safetensors_close(file);
}

int main(void)
{
    if (system("python3 -c pass >/dev/null 2>&1")) {
        printf("SKIP: no python3 to compare with\n");
        return SKIPPED;
    }
    return test_suite_run("core/formats/safetensors reference");
}
