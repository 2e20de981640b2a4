// SPDX-License-Identifier: Apache-2.0
// Texts in HDF5 files: attributes, and the reason of an error; how files are opened. [main thread]
#ifndef LS_TOOLS_KERAS_FILES_HDF5_TEXT_H
#define LS_TOOLS_KERAS_FILES_HDF5_TEXT_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>

// How files are opened: through the streams of C. The default driver looks for the path behind
// /proc/self/fd/N, which a file in memory has not. Closed by the caller.
hid_t hdf5_access(void);

// The innermost reason of the last call that failed, for messages.
const char *hdf5_error(void);

// An attribute that is one text. False: there is none, or it is something else, or larger than
// MOST_TEXT. Freed by the caller.
bool hdf5_text(hid_t object, const char *name, char **out);

struct text_list {
    char **texts;
    size_t count;
};

// An attribute that is a list of texts. Keras cuts long lists into NAME0, NAME1, ...: they are put
// together. An attribute that is not there is an empty list. False: it is something else.
bool hdf5_list(hid_t object, const char *name, struct text_list *out);
void text_list_finish(struct text_list *list);
bool hdf5_has_list(hid_t object, const char *name);

#endif
