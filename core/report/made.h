// SPDX-License-Identifier: Apache-2.0
// What every report says of its making, under "made":
//
//     {"date": "2026-11-27T12:40:00Z", "command_line": ["lockstep", "train", "--model=cnn"],
//      "commit": "a158e5ab", "host": "node1"}
//
// What is not known is left out. Nothing that compares reports looks at it. [any thread]
#ifndef LS_REPORT_MADE_H
#define LS_REPORT_MADE_H

#include <jansson.h>

extern const char ls_commit[]; // of the sources, from git; core/commit.c.in

// For all reports of this process. Borrowed; "unknown" is none.
void ls_made_set_commit(const char *commit);
// The words that started the program, the last one NULL; they are copied, without what may be secret: in
// https://user:password@host what is before the @, and values of names that end in password, token, key and the like;
// other words are written as they are. NULL, or an empty first word: unknown.
void ls_made_set_command_line(const char *const *words);
// A text of the user's for a report, without what may be secret likewise. `name`: of the option whose value it is; NULL:
// of none. NULL is null. NULL: no memory.
json_t *ls_made_text_json(const char *name, const char *text);

json_t *ls_made_json(void); // a new object; NULL: no memory

#endif
