// SPDX-License-Identifier: Apache-2.0
// The address of this host.
#ifndef LS_PLACE_OWN_ADDRESS_H
#define LS_PLACE_OWN_ADDRESS_H

#include "core/place/resolve.h"

// The numeric address at which other hosts most likely reach this one: what its name stands for, if
// one of its interfaces has that; else that of the first interface that is up. Loopback never.
// False: it has none. May ask name servers, for as long as the system's resolver does.
// [main thread]
bool ls_own_address(char out[LS_HOST_BYTES]);

#endif
