// SPDX-License-Identifier: Apache-2.0
// Files of Keras: HDF5 (.weights.h5 of Keras 3, .h5 of Keras 2) and ZIP archives (.keras). Such
// files come from anywhere, and the libraries that read them are large. So another program,
// `lockstep-keras-files`, reads and writes them, in a child process with limits; a hostile file
// harms only this process. The program hands over safetensors in memory. [any thread]
#ifndef LS_FORMATS_KERAS_FILE_H
#define LS_FORMATS_KERAS_FILE_H

#include "core/base/status.h"
#include "core/formats/safetensors.h"

#include <stdbool.h>

#define LS_KERAS_PROGRAM "lockstep-keras-files"

// Texts of what is handed over (ls_safetensors_text).
#define LS_KERAS_MODEL "model" // the model's JSON; read: where the file has it
#define LS_KERAS_TRAINING "training_config" // read: JSON, of Keras 2
#define LS_KERAS_VERSION "keras_version" // read: of the Keras that wrote the file
// Read from the layout of Keras 2, where tensors come in the order of the file: JSON, a list of
// [layer, number of its tensors], without the optimizer.
#define LS_KERAS_LAYERS "layers"
#define LS_KERAS_SKIPPED "skipped" // read: number of tensors of optimizers, which are left out
#define LS_KERAS_NAMES "names" // JSON, group -> layer: {"layers/dense": "dense_2"}
#define LS_KERAS_ARCHIVE "archive" // written: "yes" for .keras, else .weights.h5

struct ls_keras_program {
    const char *path; // NULL: there is none
    uint32_t seconds; // that a child may take; 0: by the size of the file
};

// Whether the file begins as HDF5 or ZIP does. False where it cannot be read.
bool ls_keras_file_is(const char *path);
// LS_BAD_INPUT, logged: a file that is called .h5 or .keras begins like no format that is known,
// because it is empty or damaged. What cannot be read is left to who reads it.
LS_STATUS ls_keras_file_check(const char *scope, const char *path);

// LS_BAD_INPUT, logged with path and reason, for a file that is malformed, crashes the libraries or
// exceeds a limit; LS_UNAVAILABLE, logged, where there is no program.
LS_STATUS ls_keras_file_read(const struct ls_keras_program *program, const char *path,
                             struct ls_safetensors **out);

// Tensors are named by group and number: "layers/dense/vars/0". The file is whole or unchanged.
LS_STATUS ls_keras_file_write(const struct ls_keras_program *program, const char *path,
                              const struct ls_saved *saved);

// Logs why files of Keras can be neither read nor written, and what to install. LS_UNAVAILABLE.
LS_STATUS ls_keras_file_unavailable(const char *path);

#endif
