// SPDX-License-Identifier: Apache-2.0
// The compiler attributes that Lockstep uses, in one place.
#ifndef LS_ATTRIBUTES_H
#define LS_ATTRIBUTES_H

#define LS_MUST_CHECK __attribute__((warn_unused_result))
#define LS_PRINTF(format_index, first_argument) \
    __attribute__((format(printf, format_index, first_argument)))
// Thread-local memory that is there from the start: reading it never allocates.
#define LS_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
// Another name of a function of the same file.
#define LS_ALIAS(name) __attribute__((alias(name)))
// Part of its caller, for what is called several times in a microsecond.
#define LS_ALWAYS_INLINE static inline __attribute__((always_inline))
// Never part of its caller, so that the caller saves no registers for what happens rarely.
#define LS_COLD __attribute__((cold, noinline))
// Of a local variable: `function` gets its address when its block ends, however it ends.
#define LS_AT_END(function) __attribute__((cleanup(function)))
// Of a function without arguments: the loader calls it when it has loaded the shared object.
#define LS_AT_LOAD __attribute__((constructor))
#define LS_API __attribute__((visibility("default")))

#endif
