// SPDX-License-Identifier: Apache-2.0
// `auto`: the one collective that is no file. It stands for those that are, one for each size,
// and core/collective/tuner.h decides which; the loader knows its options, and opens its candidates
// (candidates.c).
#include "core/loader/internal.h"

#include "core/base/log.h"
#include "core/plugin/collective.h"

#include <string.h>

static const struct ls_plugin_option options[] = {
    {"candidates", "text", NULL,
     "collectives to measure: names joined by +, such as ring+tree; default: all"},
    {"table", "text", NULL,
     "use a FILE that lockstep bench --tune=FILE wrote, or the built-in table (fixed), and measure "
     "nothing"},
    {NULL, NULL, NULL, NULL},
};

static struct ls_module module = {
    .descriptor = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = LS_AUTO, .version = "0.1.0",
                   .licence = "Apache-2.0",
                   .summary = "for each size the collective that is fastest here, measured when "
                              "the run begins",
                   .options = options},
    .plugin = &module.descriptor,
    .file = (char *)LS_BUILT_IN,
};

const struct ls_module *ls_auto_module(void)
{
    return &module;
}

bool ls_is_auto(const struct ls_opened_plugin *opened)
{
    return opened && opened->plugin == &module.descriptor;
}

enum ls_status ls_auto_check_option(const char *scope, const struct ls_module *opened,
                                    const char *name)
{
    if (opened != &module || strcmp(name, "network"))
        return LS_OK;
    ls_error(scope,
             "auto has no option network, because it measures on the devices of the run; lockstep "
             "simulate NAMES --network=NETWORK predicts times on another network");
    return LS_USAGE;
}
