// SPDX-License-Identifier: Apache-2.0
// Numbers are read and written as in C ("0.25"), whatever locale the program has set: threads work in the C locale while
// they are inside of the library, and in the program's own while they are in a function of the program. This is a
// matter of the thread alone (uselocale) and costs a few stores. [any thread]
#ifndef LS_BASE_PLAIN_LOCALE_H
#define LS_BASE_PLAIN_LOCALE_H

#include "core/attributes.h"

#include <locale.h>

// Into the C locale, and around a call of the program's function back into that of the program. Both return what
// the thread had, for ls_locale_return. Calls may be nested.
locale_t ls_locale_enter_plain(void);
locale_t ls_locale_enter_program(void);
void ls_locale_return(locale_t before);

// The same up to the end of the block: LS_PLAIN_LOCALE; or LS_PROGRAM_LOCALE; among its declarations.
static inline void ls_locale_end_block(const locale_t *before)
{
    ls_locale_return(*before);
}
#define LS_PLAIN_LOCALE \
    const locale_t ls_before LS_AT_END(ls_locale_end_block) = ls_locale_enter_plain()
#define LS_PROGRAM_LOCALE \
    const locale_t ls_before LS_AT_END(ls_locale_end_block) = ls_locale_enter_program()

#endif
