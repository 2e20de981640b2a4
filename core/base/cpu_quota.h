// SPDX-License-Identifier: Apache-2.0
// Quotas of processor time, as docker --cpus and Kubernetes' limits.cpu set them for a control group.
#ifndef LS_BASE_CPU_QUOTA_H
#define LS_BASE_CPU_QUOTA_H

#include <stdint.h>

// How many processors the quotas of this process's control groups (versions 1 and 2), and of those
// above them, are worth: rounded up, so at least 1. 0: there is none. `root` is in front of every
// path; "" but for tests. [any thread]
uint32_t ls_cpu_quota(const char *root);

#endif
