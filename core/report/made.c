// SPDX-License-Identifier: Apache-2.0
// Date, command line, commit and host of a report.
#include "core/report/made.h"

#include "core/report/json_values.h"

#include <ctype.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN "***"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static json_t *command_line; // NULL: unknown
static const char *commit;

// Whether what ends before `end` is a name of something secret: api_key, --token, my-callback:password.
static bool is_secret(const char *begin, const char *end)
{
    static const struct {
        const char *name;
        bool is_word; // it begins where a word does: compass is no pass
    } names[] = {
        {"secret", false}, {"password", false},  {"passwd", false},     {"passphrase", false},
        {"token", false},  {"key", false},       {"credential", false}, {"credentials", false},
        {"auth", false},   {"signature", false}, {"bearer", false},     {"pwd", false},
        {"pass", true},    {"sig", true},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t length = strlen(names[i].name);
        if ((size_t)(end - begin) < length || strncasecmp(end - length, names[i].name, length) != 0)
            continue;
        const char *at = end - length;
        if (!names[i].is_word || at == begin || !isalnum((unsigned char)at[-1]))
            return true;
    }
    return false;
}

// Overwrites from `begin` to `end` within a text that has room for it.
static void hide(char *begin, const char *end)
{
    memmove(begin + strlen(HIDDEN), end, strlen(end) + 1);
    memcpy(begin, HIDDEN, strlen(HIDDEN));
}

// A value ends with its word, because signs that would end it may be quoted. NULL: no memory.
static json_t *word_json(const char *word, bool whole)
{
    const size_t room = 2 * strlen(word) + sizeof(HIDDEN); // an address has at least "://" and "@"
    char *copy = malloc(room);
    if (!copy)
        return NULL;
    strcpy(copy, word);
    if (whole)
        strcpy(copy, HIDDEN);
    for (char *at = copy; (at = strstr(at, "://"));) {
        at += strlen("://");
        // A password may have any sign, such as /, so that a path with @ is hidden, too.
        const char *next = strstr(at, "://"), *end = at + strcspn(at, " ");
        const char *sign = next && next < end ? next : end;
        while (sign > at && sign[-1] != '@')
            sign--;
        if (sign > at)
            hide(at, sign - 1);
    }
    for (char *at = copy; (at = strchr(at, '='));) {
        at++;
        if (*at && is_secret(copy, at - 1)) {
            strcpy(at, HIDDEN);
            break;
        }
    }
    json_t *json = ls_report_text_json(copy);
    free(copy);
    return json;
}

void ls_made_set_commit(const char *of_sources)
{
    commit = strcmp(of_sources, "unknown") == 0 ? NULL : of_sources;
}

void ls_made_set_command_line(const char *const *words)
{
    json_t *list = words && words[0] && words[0][0] ? json_array() : NULL;
    for (bool secret = false; list && *words; words++) {
        const char *word = *words;
        if (json_array_append_new(list, word_json(word, secret && strncmp(word, "--", 2) != 0))) {
            json_decref(list);
            list = NULL;
        }
        secret = word[0] == '-' && !strchr(word, '=') && is_secret(word, word + strlen(word));
    }
    pthread_mutex_lock(&lock);
    json_decref(command_line);
    command_line = list;
    pthread_mutex_unlock(&lock);
}

json_t *ls_made_text_json(const char *name, const char *text)
{
    return text ? word_json(text, name && is_secret(name, name + strlen(name))) : json_null();
}

json_t *ls_made_json(void)
{
    json_t *made = json_object();
    char date[32], host[256] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) && strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &parts))
        json_object_set_new(made, "date", json_string(date));
    pthread_mutex_lock(&lock);
    if (command_line)
        json_object_set_new(made, "command_line", json_deep_copy(command_line));
    pthread_mutex_unlock(&lock);
    if (commit)
        json_object_set_new(made, "commit", json_string(commit));
    if (gethostname(host, sizeof(host) - 1) == 0 && *host)
        json_object_set_new(made, "host", ls_report_text_json(host));
    return made;
}
