// SPDX-License-Identifier: Apache-2.0
// Options as users write them: `NAME` or `NAME:option=value,option=value`, checked against tables
// of struct ls_plugin_option; and the nearest name for one that does not exist. A sign that would
// end a name or a value (: , +) or make it a pattern (* ? [) is a part of it behind a backslash, or
// in a value that is between double quotes. [any thread]
#ifndef LS_BASE_OPTIONS_H
#define LS_BASE_OPTIONS_H

#include "core/base/status.h"
#include "core/plugin/plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_option_value {
    char *name;
    char *value;
    char *written; // the value with backslashes, of which a list is taken apart; NULL: as `value`
};

// "ring:groups=2,transport=local" in parts. Initialised by ls_spec_parse, freed by ls_spec_finish.
struct ls_spec {
    char *name;
    struct ls_option_value *options;
    size_t option_count;
};

// Errors (LS_USAGE, logged under `scope`, e.g. "--strategy"): empty name, option without '=', the
// same option twice.
LS_STATUS ls_spec_parse(const char *scope, const char *text, struct ls_spec *out);
void ls_spec_finish(struct ls_spec *spec); // takes a zeroed one

// The value given for `name`, else NULL. Borrowed.
const char *ls_spec_get(const struct ls_spec *spec, const char *name);

// The same of an option that has a list, "A+B", for the calls below, which take one name after the
// other off it: NULL, no memory. `list` becomes what is left, NULL at the end.
const char *ls_spec_list(const struct ls_spec *spec, const char *name);
char *ls_list_take(const char **list);
// Of files; a name without a slash is one of folder `dir`, unless that is NULL. What exists is taken
// as it is, plus signs, brackets and all. `pattern`: the name is one, and backslashes are left in
// it, as glob() reads them; may be NULL.
char *ls_list_take_file(const char *dir, const char **list, bool *pattern);

// Writes `value` as it is given in a specification, with a backslash before each sign. `out` has room
// for `bytes`: two for each letter, and one.
void ls_spec_quote(const char *value, size_t bytes, char *out);

// Checks every option of `spec` against `table` (ends with a NULL name; NULL: empty). Unknown names
// (the message suggests the nearest) and values of the wrong type are LS_USAGE, logged under
// `scope`.
LS_STATUS ls_spec_check(const char *scope, const struct ls_spec *spec,
                        const struct ls_plugin_option *table);

// The entry called `name`, else NULL.
const struct ls_plugin_option *ls_option_find(const struct ls_plugin_option *table,
                                              const char *name);

// Whether `value` is of the type of `option`.
bool ls_option_fits(const struct ls_plugin_option *option, const char *value);

// Checks one value against the type of `option`. LS_USAGE, logged under `scope`.
LS_STATUS ls_option_check(const char *scope, const struct ls_plugin_option *option,
                          const char *value);

// Strict conversions of the whole text; false when it is not of that form or out of range.
bool ls_parse_integer(const char *text, int64_t *out);
bool ls_parse_number(const char *text, double *out);
bool ls_parse_boolean(const char *text, bool *out); // on/off, true/false, yes/no, 1/0

// The name in `names` (ends with NULL) with the smallest edit distance to `name`, if it is small
// enough for a typing error (at most a third of the letters, or one); else NULL.
const char *ls_nearest(const char *name, const char *const *names);

// A hint for users who give a name from another framework. Tables end with NULL `names`.
struct ls_hint {
    const char *names; // separated by spaces
    const char *text; // the name in Lockstep, or that there is no equivalent
    uint32_t kinds; // where the hint applies: bits that the table defines
};

// Whether `name` is `known` but for capitals, dashes and underscores.
bool ls_is_spelled(const char *known, const char *name);

// The first entry of `table` for `name` that shares a bit with `kinds`, else NULL. Case, dashes,
// underscores and a prefix that ends in a dot do not matter: "tf.distribute.MirroredStrategy" is
// "MirroredStrategy".
const struct ls_hint *ls_hint_find(const struct ls_hint *table, uint32_t kinds, const char *name);

#endif
