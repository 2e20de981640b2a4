// SPDX-License-Identifier: Apache-2.0
// A comparison on workers other than 0: they start and end processes as worker 0 says.
#ifndef LS_TOOLS_COMPARE_FOLLOW_H
#define LS_TOOLS_COMPARE_FOLLOW_H

#include "tools/compare/crew.h"

// Until there is nobody any more who gives orders; whoever has joined knows why. `setting` is
// changed as worker 0 finds out more.
void compare_follow(struct compare_crew *workers, struct compare_setting *setting);

#endif
