// SPDX-License-Identifier: Apache-2.0
// lockstep plugin: subcommands for whoever writes a plugin.
#include "tools/command.h"

static const struct command *const subcommands[] = {
    &plugin_new_command,
    &plugin_check_command,
    NULL,
};

const struct command plugin_command = {
    .name = "plugin",
    .operands = "new|check",
    .summary = "begins a plugin of your own, or checks one",
    .help = "",
    .subcommands = subcommands,
};
