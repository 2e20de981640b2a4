// SPDX-License-Identifier: Apache-2.0
// What processes of a launch have left behind: children of theirs, which become children of this
// program when their parent ends, also where they left its process group (daemons). [main thread]
#ifndef LS_TOOLS_LAUNCH_LEFTOVER_H
#define LS_TOOLS_LAUNCH_LEFTOVER_H

#include <stdbool.h>

// Whether this program has children, ended or not, that nobody has reaped.
bool launch_has_children(void);
// Ends all children of this program. Their own children are found once those have been reaped.
void launch_kill_children(void);
// Says which ones are left: the kernel does not end a process that waits for a device. Some may
// have ended by then.
void launch_name_children(void);
// Removes the folder of the servers' files, and those in it; "": there is none.
void launch_remove_folder(const char *path);

#endif
