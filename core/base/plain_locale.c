// SPDX-License-Identifier: Apache-2.0
#include "core/base/plain_locale.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t plain; // 0: no memory, and threads keep what they have
static _Thread_local locale_t
    of_program; // before the thread came into the library; 0: it was started by it

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t ls_locale_enter_plain(void)
{
    pthread_once(&once, make_plain);
    const locale_t now = uselocale(plain); // 0 asks, and changes nothing
    if (now != plain)
        of_program = now;
    return now;
}

locale_t ls_locale_enter_program(void)
{
    const locale_t now = uselocale((locale_t)0);
    return plain && now == plain ? uselocale(of_program ? of_program : LC_GLOBAL_LOCALE) : now;
}

void ls_locale_return(locale_t before)
{
    uselocale(before);
}
